// The one sentence that is spoken: what the volunteer does, and what of its work counts. Pure, and rarely changing:
// computing and exchanging alternate many times a second and are the same to a listener.
import type { VolunteerPhase, VolunteerStatus } from '@starling-grid/volunteer'
import { count } from '../format.ts'
import type { SessionState } from './session.ts'

const TRAINING: readonly VolunteerPhase[] = ['computing', 'exchanging', 'validating']
/** Short pauses between steps; they need no announcement while samples already count. */
const PAUSING: readonly VolunteerPhase[] = ['waiting', 'catching-up']

/** What kind of moment it is: a new kind is said at once, the same kind at most every ten seconds. */
export function momentOf(state: SessionState): string {
  if (state.type !== 'running' || state.status === null) return state.type
  const { phase, samplesCommitted } = state.status
  if (samplesCommitted > 0 && (TRAINING.includes(phase) || PAUSING.includes(phase))) return 'counted'
  return TRAINING.includes(phase) ? 'training' : phase
}

export function announcement(state: SessionState): string {
  switch (state.type) {
    case 'idle':
      return ''
    case 'running':
      return state.status === null ? 'Checking this device …' : inWords(state.status)
    case 'stopping':
      return 'Leaving: handing your work to others …'
    case 'ended':
      return ending(state)
    case 'failed':
      return contributed(state.status)
    default:
      return state satisfies never
  }
}

function inWords(status: VolunteerStatus): string {
  const { phase, detail } = status
  if (PAUSING.includes(phase) && status.samplesCommitted > 0) return contributed(status)
  if (TRAINING.includes(phase))
    return contributed(status) || 'Training: your first samples are on their way into a version.'
  if (phase === 'connecting') return 'Looking for the coordinator; this tab continues by itself as soon as it answers.'
  if (phase === 'finished') return `The run is finished. ${contributed(status)} This tab waits for the next job.`
  return detail === '' ? `${PHASE_WORDS[phase]} …` : `${PHASE_WORDS[phase]}: ${detail}.`
}

function ending(state: Extract<SessionState, { type: 'ended' }>): string {
  const counted = contributed(state.status) || 'No samples counted yet.'
  if (state.by === 'run') return `The run is finished. ${counted} Thank you.`
  const rest = state.clean
    ? 'Your unfinished work was handed to other volunteers.'
    : 'The coordinator did not answer in time; it will notice within seconds.'
  return `Stopped. ${counted} ${rest}`
}

/** Counted here at once: these samples are in committed versions. */
function contributed(status: VolunteerStatus | null): string {
  if (status === null || status.samplesCommitted === 0) return ''
  return `${count(status.samplesCommitted)} of your samples are in version ${count(status.version)}.`
}

export const PHASE_WORDS: Readonly<Record<VolunteerPhase, string>> = {
  connecting: 'Connecting',
  waiting: 'Waiting',
  preparing: 'Preparing',
  'catching-up': 'Catching up',
  computing: 'Computing',
  exchanging: 'Exchanging',
  validating: 'Validating',
  finished: 'Finished',
  stopped: 'Stopped',
  failed: 'Failed',
}
