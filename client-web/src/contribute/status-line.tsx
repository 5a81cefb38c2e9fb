// The sentence that screen readers speak: at once when something new happens, else at most every ten seconds.
import { useEffect, useRef, useState } from 'preact/hooks'
import { announcement, momentOf } from './announcement.ts'
import type { SessionState } from './session.ts'

const SAME_MOMENT_MS = 10_000

export function StatusLine(props: { readonly state: SessionState }) {
  const moment = momentOf(props.state)
  const text = useCalm(announcement(props.state), moment)
  // Eyes have the same in the tally, and newer.
  const classes = moment === 'counted' ? 'status-line only-spoken' : 'status-line'
  return (
    <p class={classes} role="status">
      {text}
    </p>
  )
}

/** `text`, but while `moment` stays the same it changes only every SAME_MOMENT_MS. */
function useCalm(text: string, moment: string): string {
  const [said, setSaid] = useState(text)
  const last = useRef({ moment, at: 0 })
  useEffect(() => {
    const say = (): void => {
      last.current = { moment, at: Date.now() }
      setSaid(text)
    }
    if (moment !== last.current.moment) return say()
    const timer = setTimeout(say, Math.max(0, last.current.at + SAME_MOMENT_MS - Date.now()))
    return () => clearTimeout(timer)
  }, [text, moment])
  return said
}
