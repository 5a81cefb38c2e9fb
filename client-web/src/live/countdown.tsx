// Whole seconds until a moment, counted down once a second.
import { useEffect, useState } from 'preact/hooks'

export function Countdown(props: { readonly until: number }) {
  const seconds = useSecondsUntil(props.until)
  return <span class="number">{seconds}</span>
}

function useSecondsUntil(until: number): number {
  const left = (): number => Math.max(0, Math.ceil((until - Date.now()) / 1000))
  const [seconds, setSeconds] = useState(left)
  useEffect(() => {
    setSeconds(left())
    const timer = setInterval(() => setSeconds(left()), 1000)
    return () => clearInterval(timer)
  }, [until])
  return seconds
}
