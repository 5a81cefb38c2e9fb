// The watch stream is away: shows it at once, counts down, and reconnects.
import { Countdown } from '../live/countdown.tsx'
import type { LiveRun } from '../live/live-run.ts'

export function LinkNotice(props: { readonly live: LiveRun }) {
  const link = props.live.link.value
  if (link.type !== 'away') return null
  return (
    <div class="notice link-notice" role="alert" data-reason="coordinator-away">
      <p class="cause">The coordinator is not responding. The data below may be out of date.</p>
      <p class="next-step">
        Asking again in <Countdown until={link.retryAt} /> s.{' '}
        <button type="button" class="quiet" onClick={() => props.live.retryNow()}>
          Ask now
        </button>
      </p>
    </div>
  )
}
