// The coordinator is away: shows it, counts down, and continues without a click.
import { Countdown } from '../live/countdown.tsx'
import type { LiveRun } from '../live/live-run.ts'
import type { Session } from './session.ts'

export function CoordinatorNotice(props: { readonly live: LiveRun; readonly session: Session }) {
  const link = props.live.link.value
  if (link.type !== 'away') return null
  const lending = props.session.state.value.type === 'running'
  return (
    <div class="notice" role="alert" data-reason="coordinator-away">
      <p class="cause">The coordinator does not answer. It may be restarting, or this device may be offline.</p>
      <p class="next-step">
        {lending ? 'This tab rejoins by itself. Asking again in ' : 'This page asks again in '}
        <Countdown until={link.retryAt} /> s. If it takes minutes, check your network.
      </p>
    </div>
  )
}
