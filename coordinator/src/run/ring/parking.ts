// Another job gets the volunteers, or the owner lets the run rest. Before they go, the run ends its step and gets a
// checkpoint of its head. So nothing that they trained is repeated later. For a bounded time; then they go anyway, and
// the run says what that costs.
import { closeSum } from '../async/accumulator.ts'
import { askCheckpoint, askServer, dropUnbegun } from '../history/checkpoints.ts'
import { newestCheckpoint } from '../journal-replay.ts'
import { own, type RunPhase, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { drain } from './ring.ts'

type Working = Extract<RunPhase, { type: 'ring' | 'async' }>

/** why a run rests whose owner paused it */
export const OWNER_PAUSED = 'its owner paused it'

/** ms for leased blocks to come back before the open sum is closed without them */
const LEASES_MS = 5000

declare module '../state.ts' {
  interface Slices {
    parking: Parking
  }
}

/** Another job gets the volunteers, since when and why. */
export interface Parking {
  asked: { readonly since: number; readonly reason: string } | undefined
}

export const parking = {
  initial: () => ({ parking: { asked: undefined } }),
  on: { park: (transition, { reason }) => park(transition, reason), pause, resume },
  tick: parkingTick,
  holds,
  plan: { window: ({ parking, paused }, window) => (parking.asked === undefined && !paused ? window : 0) },
} satisfies Aspect

/** Durable before the run ends its step: a restart finds it paused, whatever was reached. */
function pause(transition: Transition): void {
  const { state } = transition
  if (state.paused || state.finished !== undefined) return
  transition.journal({ type: 'paused', paused: true })
  if (state.parking.asked === undefined) return park(transition, OWNER_PAUSED)
  transition.note('run', OWNER_PAUSED)
}

/** A ring that drained plans no further step (drain): its members form the next one. */
function resume(transition: Transition): void {
  const { state } = transition
  if (!state.paused) return
  transition.journal({ type: 'paused', paused: false })
  transition.note('run', 'its owner lets the run go on')
  if (state.parking.asked?.reason === OWNER_PAUSED) own(state, 'parking').asked = undefined
  if (state.phase.type === 'ring' && state.parking.asked === undefined)
    return transition.enqueue({ type: 'ballot', reason: 'its owner lets the run go on', trouble: false })
  transition.enqueue({ type: 'advance' })
}

function park(transition: Transition, reason: string): void {
  const { state, now } = transition
  if (state.parking.asked !== undefined) return
  own(state, 'parking').asked = { since: now, reason }
  transition.note('run', `${reason}: this run ends its step, writes a checkpoint and pauses`)
  transition.enqueue({ type: 'advance' })
  parkingTick(transition)
}

/**
 * Outside of a ring and the parameter server nothing is under way that a checkpoint could save. The server needs no
 * member to write one.
 */
function parkingTick(transition: Transition): void {
  const { state, now } = transition
  const { phase, members, config } = state
  const { asked: parking } = state.parking
  if (parking === undefined) return
  const isEmpty = members.size === 0 && phase.type !== 'async'
  const isResting = isEmpty || phase.type === 'waiting' || phase.type === 'finished'
  if (isResting || now - parking.since >= config.timing.parkMs) onParked(transition)
}

/** What the run does instead of planning on. */
function holds(transition: Transition): string | undefined {
  const { phase } = transition.state
  const { asked: parking } = transition.state.parking
  if (phase.type !== 'ring' && phase.type !== 'async') return undefined
  if (parking === undefined) return transition.state.paused ? OWNER_PAUSED : undefined
  writeAndRest(transition, phase)
  return transition.state.parking.asked === undefined
    ? transition.state.phaseReason
    : `${parking.reason}; writing version ${transition.state.chain.head.v}`
}

function writeAndRest(transition: Transition, phase: Working): void {
  const { state } = transition
  if (phase.type === 'ring' && !isRingResting(state, phase))
    return drain(transition, phase, state.paused ? OWNER_PAUSED : 'another job gets the volunteers')
  if (phase.type === 'async' && areLeasesOut(transition)) return
  if (phase.type === 'async' && state.open.pushes.length > 0) closeSum(transition)
  if (unsaved(state) === 0) return onParked(transition)
  if (phase.type === 'async') return askServer(transition, phase)
  const { asked } = state.checkpointing
  if ((asked?.v ?? 0) > state.chain.head.v) dropUnbegun(transition) // its version comes after the pause
  askCheckpoint(transition, phase, state.chain.head.v)
}

/** No member begins another step. */
export function isRingResting(
  { chain }: RunState,
  { plannedTo, lastStep }: Extract<RunPhase, { type: 'ring' }>,
): boolean {
  return plannedTo === chain.head.v || (lastStep !== undefined && chain.head.v >= lastStep.step)
}

function areLeasesOut({ state, now }: Transition): boolean {
  return state.leases.size > 0 && now - (state.parking.asked?.since ?? now) < LEASES_MS
}

/** committed steps since the newest checkpoint */
function unsaved(state: RunState): number {
  return state.chain.head.v - newestCheckpoint(state).version.v
}

function onParked(transition: Transition): void {
  const { state } = transition
  const steps = unsaved(state)
  transition.note(
    'run',
    steps === 0
      ? `paused at version ${state.chain.head.v}`
      : `paused at version ${state.chain.head.v}; its last ${steps} steps are in no checkpoint and are repeated ` +
          'if no volunteer brings them back',
  )
  transition.reason(state.paused ? OWNER_PAUSED : 'paused for another job')
  own(state, 'parking').asked = undefined
  transition.effect({ type: 'parked' })
}
