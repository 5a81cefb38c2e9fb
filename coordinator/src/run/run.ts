// START HERE: the coordinator's decisions about one run. `decide(state, input, now)` changes the state it is given and
// returns what is to be done and why. No I/O, no clock, no randomness: the same state, input and time always decide the
// same.
import type { MemberId } from '@starling-grid/protocol'
import { ASPECTS } from './aspects.ts'
import { enterAsync } from './async/async.ts'
import { callBallot, decide as decideBallot, openBallot } from './ballot/ballot.ts'
import { rewind } from './ballot/rewind.ts'
import { newestCheckpoint } from './journal-replay.ts'
import { abortedBefore, planOn } from './ring/ring.ts'
import type { Decision, Effect, RunInput, RunMessage, RunState } from './state.ts'
import { type Aspect, type FollowUp, Transition } from './transition.ts'

export function decide(state: RunState, input: RunInput, now: number): Decision {
  const transition = new Transition(state, now, ASPECTS)
  try {
    onInput(transition, input)
    for (let next = transition.followUps.shift(); next !== undefined; next = transition.followUps.shift())
      follow(transition, next)
  } catch (cause) {
    throw new HalfDecided(transition.effects, cause)
  }
  return { effects: transition.effects, reason: state.phaseReason }
}

/** A defect of ours. What was decided before it is in the state, so that its effects have to be carried out (R1). */
export class HalfDecided extends Error {
  readonly effects: readonly Effect[]
  constructor(effects: readonly Effect[], cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause })
    this.effects = effects
  }
}

function onInput(transition: Transition, input: RunInput): void {
  if (input.type === 'message') return onMessage(transition, input.member, input.message)
  for (const { on } of ASPECTS) handlerOf(on, input.type)?.(transition, input)
  if (input.type === 'coordinator-started') onStarted(transition)
  if (input.type === 'tick') tick(transition)
}

/** TypeScript does not see that a handler under a type's name takes that type. */
function handlerOf(
  on: Aspect['on'],
  type: RunInput['type'],
): ((transition: Transition, input: RunInput) => void) | undefined {
  return on?.[type] as ((transition: Transition, input: RunInput) => void) | undefined
}

/**
 * R2: a restarted coordinator, whose fence is raised in the journal already, opens a new ballot; it never continues an
 * old generation.
 */
function onStarted(transition: Transition): void {
  const { state } = transition
  const lastRing = [...state.rings.values()].at(-1) ?? []
  if (state.finished !== undefined) {
    state.phase = { type: 'finished' }
    return transition.reason(state.finished)
  }
  if (state.generation === 0) return transition.reason('waiting for volunteers')
  if (state.mode === 'async') return restartAsync(transition)
  openBallot(transition, 'ring', {
    reason: 'the coordinator started again',
    waitMs: state.config.timing.rejoinMs,
    wait: lastRing,
  })
}

/** A4: what the parameter server had beyond its last checkpoint is gone with the process. */
function restartAsync(transition: Transition): void {
  const { state } = transition
  if (newestCheckpoint(state).version.v < state.chain.head.v)
    return rewind(transition, 'the parameter server restarted')
  transition.enqueue({ type: 'ballot', reason: 'the coordinator started again', trouble: false })
}

/** Every message carries owner and generation; older ones are ignored (R3, R11). */
function onMessage(transition: Transition, member: MemberId, message: RunMessage): void {
  if ('generation' in message && message.fence !== transition.state.fence) return
  if ('generation' in message && message.generation !== transition.state.generation)
    return message.type === 'abort' ? abortedBefore(transition, member, message) : undefined
  for (const { hear } of ASPECTS) hearerOf(hear, message.type)?.(transition, member, message)
}

function hearerOf(
  hear: Aspect['hear'],
  type: RunMessage['type'],
): ((transition: Transition, member: MemberId, message: RunMessage) => void) | undefined {
  return hear?.[type] as ((transition: Transition, member: MemberId, message: RunMessage) => void) | undefined
}

function tick(transition: Transition): void {
  const { phase } = transition.state
  for (const aspect of ASPECTS) {
    aspect.tick?.(transition)
    if (transition.followUps.length > 0 || transition.state.phase !== phase) return
  }
}

function follow(transition: Transition, next: FollowUp): void {
  switch (next.type) {
    case 'ballot':
      return callBallot(transition, next.reason, next.trouble)
    case 'decide':
      return decideBallot(transition)
    case 'advance':
      return advance(transition)
    case 'enter-async':
      return enterAsync(transition, next.handed)
    default:
      next satisfies never
  }
}

/** What the run asks for now: a row that holds it, or the next steps. */
function advance(transition: Transition): void {
  const { phase } = transition.state
  if (phase.type !== 'ring' && phase.type !== 'async') return
  for (const aspect of ASPECTS) aspect.advance?.(transition)
  for (const aspect of ASPECTS) {
    const why = aspect.holds?.(transition)
    if (why !== undefined) return transition.reason(why)
  }
  planOn(transition)
}
