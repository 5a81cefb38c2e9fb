// START HERE: the coordinator's decisions about one run. `decide(state, input, now)` changes the state it is given and
// returns what is to be done and why. No I/O, no clock, no randomness: the same state, input and time always decide the
// same.
import type { MemberId } from '@starling-grid/protocol'
import { closeWhenDue } from './async/accumulator.ts'
import { asyncTick, askServer, enterAsync, onServerCheckpoint, onServerLost } from './async/async.ts'
import { onGaveBack, grantTraining, onLeaseRequest, onPush, onPushRefused } from './async/leases.ts'
import { onConfirm, decide as decideBallot, enterRing, openBallot, onState } from './ballot/ballot.ts'
import { considerHandover, onHandedOver, onHandoverBegun, handoverTick } from './ballot/handover.ts'
import { checkpointDigested, proofTold } from './ballot/proofs.ts'
import { onPromised } from './ballot/restored.ts'
import { rewind } from './ballot/rewind.ts'
import {
  askCheckpoint,
  checkpointDue,
  considerUpload,
  onVersionDigest,
  nextCheckpointVersion,
  onUploadBegun,
  onUploaded,
  onUploadFailed,
} from './history/checkpoints.ts'
import { onCheckpointDamaged } from './history/damaged-checkpoint.ts'
import { grantValidation, onValidated, validationDue } from './history/validation.ts'
import { newestCheckpoint } from './journal-replay.ts'
import { nextMode } from './policy/mode-policy.ts'
import { onUnreadable, pausedBecause, quarantineTick, onShardChecked } from './queue/quarantine.ts'
import { currentEpoch, trainingIsOver } from './queue/scheduler.ts'
import { onCopied, onPrefetched } from './ring/learners.ts'
import { onMemberJoined, onMemberLost } from './ring/membership.ts'
import { onOffRingKnown, recallOffRing } from './ring/off-ring.ts'
import { advanceParking, park, parkingTick } from './ring/parking.ts'
import { onReleased, onBehind, onProgress } from './ring/rebalance.ts'
import {
  onAbort,
  abortedBefore,
  change,
  formTimedOut,
  onHeld,
  onLinkRestored,
  onMemberLeaving,
  ringTick,
  topUp,
} from './ring/ring.ts'
import { onStanding } from './ring/stalls.ts'
import type { Decision, Effect, RunInput, RunMessage, RunPhase, RunState } from './state.ts'
import { type FollowUp, Transition } from './transition.ts'

export function decide(state: RunState, input: RunInput, now: number): Decision {
  const transition = new Transition(state, now)
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
  switch (input.type) {
    case 'coordinator-started':
      transition.state.secret = input.secret
      return onStarted(transition)
    case 'member-joined':
      return onMemberJoined(transition, input.member, input)
    case 'member-lost':
      return onMemberLost(transition, input.member, input)
    case 'member-leaving':
      return onMemberLeaving(transition, input.member)
    case 'speed': {
      const member = transition.state.members.get(input.member)
      if (member === undefined) return
      member.samplesPerSecond = input.samplesPerSecond
      member.hidden = input.hidden ?? member.hidden
      if (input.linkMs !== undefined) transition.state.health.linkMs.set(input.member, input.linkMs)
      return
    }
    case 'message':
      return onMessage(transition, input.member, input.message)
    case 'shard-checked':
      return onShardChecked(transition, input)
    case 'upload-begun':
      onHandoverBegun(transition, input.member)
      return onUploadBegun(transition, input.member, input.version)
    case 'upload-failed':
      return onUploadFailed(transition, input.member, input.version)
    case 'uploaded':
      return transition.state.phase.type === 'handover'
        ? onHandedOver(transition, input.member, input)
        : onUploaded(transition, input.member, input)
    case 'push':
      return onPush(transition, input)
    case 'push-refused':
      return onPushRefused(transition, input.push, input.code)
    case 'server-checkpoint':
      return onServerCheckpoint(transition, input)
    case 'checkpoint-damaged':
      return onCheckpointDamaged(transition, input)
    case 'checkpoint-digested':
      return checkpointDigested(transition, input.salt, input.digest)
    case 'server-lost':
      return onServerLost(transition, input.reason)
    case 'park':
      return park(transition, input.reason)
    case 'end-with-epoch':
      return endWithEpoch(transition)
    case 'tick':
      parkingTick(transition)
      return tick(transition)
    default:
      input satisfies never
  }
}

/**
 * R2: a restarted coordinator, whose fence is raised in the journal already, opens a new ballot; it never continues an
 * old generation.
 */
function onStarted(transition: Transition): void {
  const { state } = transition
  state.leaseEpoch = state.leasesReserved
  for (const block of state.quarantined) state.asideBefore.add(block)
  const lastRing = [...state.rings.values()].at(-1) ?? []
  if (state.config.off.has('R2') && state.mode === 'ring' && lastRing.length > 0)
    return void enterRing(transition, {
      members: lastRing,
      relayed: [],
      exchange: { type: 'ring', reason: 'as before', costs: null },
      weights: lastRing.map(() => 1),
    })
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
  if (state.config.off.has('A4')) return transition.enqueue({ type: 'enter-async' })
  if (newestCheckpoint(state).version.v < state.chain.head.v)
    return rewind(transition, 'the parameter server restarted')
  transition.enqueue({ type: 'ballot', reason: 'the coordinator started again', trouble: false })
}

/** Every message carries owner and generation; older ones are ignored (R3, R11). */
function onMessage(transition: Transition, member: MemberId, message: RunMessage): void {
  if ('generation' in message && message.fence !== transition.state.fence) return
  if ('generation' in message && message.generation !== transition.state.generation)
    return message.type === 'abort' ? abortedBefore(transition, member, message) : undefined
  switch (message.type) {
    case 'state':
      return onState(transition, member, message)
    case 'promised':
      return onPromised(transition, member, message)
    case 'copied':
      return onCopied(transition, member, message)
    case 'prefetched':
      return onPrefetched(transition, member, message)
    case 'proof':
      return proofTold(transition, member, message)
    case 'confirm':
      return onConfirm(transition, member, message)
    case 'held':
      return onHeld(transition, member, message)
    case 'abort':
      return onAbort(transition, member, message)
    case 'behind':
      return onBehind(transition, member, message)
    case 'progress':
      return onProgress(transition, member, message)
    case 'standing':
      return onStanding(transition, member, message)
    case 'released':
      return onReleased(transition, member, message)
    case 'off-ring-known':
      return onOffRingKnown(transition, member, message)
    case 'link-restored':
      return onLinkRestored(transition, member, message)
    case 'version-digest':
      onVersionDigest(transition, member, message)
      return considerHandover(transition)
    case 'validated':
      return onValidated(transition, member, message)
    case 'unreadable':
      return onUnreadable(transition, member, message)
    case 'gave-back':
      return onGaveBack(transition, member, message)
    case 'lease-request':
      return onLeaseRequest(transition, member, message)
    default:
      message satisfies never
  }
}

/** What is begun is finished: R13 keeps plans inside an epoch, so no block is left half way and none is lost. */
function endWithEpoch(transition: Transition): void {
  const { state } = transition
  const epochs = currentEpoch(state) + 1
  if (state.finished !== undefined || epochs >= state.config.epochs) return
  transition.journal({ type: 'epochs', epochs })
  transition.note('run', `the owner ends the run with epoch ${epochs}`)
  transition.enqueue({ type: 'advance' })
}

function tick(transition: Transition): void {
  const { state, now } = transition
  const { phase } = state
  const { timing } = state.config
  switch (phase.type) {
    case 'freeze':
      return transition.enqueue({ type: 'decide' })
    case 'form':
      return formTimedOut(transition, phase)
    case 'ring':
      return ringTick(transition, phase)
    case 'async':
      return asyncTick(transition, phase)
    case 'lost':
      if (now - phase.since >= timing.lostMs) rewind(transition, 'no member came back with a newer version')
      return
    case 'handover':
    case 'settle':
      return modeChangeTick(transition, phase)
    case 'waiting':
      if (state.members.size >= state.config.minVolunteers && state.members.size > 0)
        transition.enqueue({ type: 'ballot', reason: 'volunteers are ready', trouble: false })
      return
    case 'finished':
      return
    default:
      phase satisfies never
  }
}

function modeChangeTick(transition: Transition, phase: Extract<RunPhase, { type: 'handover' | 'settle' }>): void {
  if (phase.type === 'handover') return handoverTick(transition, phase)
  if (transition.now - phase.since < transition.state.config.timing.formMs) return
  transition.enqueue({ type: 'ballot', reason: 'the change of mode took too long', trouble: true })
}

function follow(transition: Transition, next: FollowUp): void {
  switch (next.type) {
    case 'ballot':
      return ballot(transition, next)
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

function ballot(transition: Transition, { reason, trouble }: Extract<FollowUp, { type: 'ballot' }>): void {
  const { state, now } = transition
  if (state.phase.type === 'finished') return
  if (trouble) state.health.consecutiveAborts++
  const next = nextMode(now, state.health, state.mode, state.config)
  const fallBack = next.mode === 'async' && !state.config.off.has('R17')
  const goal = state.mode === 'async' || fallBack ? 'async' : 'ring'
  if (goal === 'async' && state.mode !== 'async') state.modeReason = next.reason
  openBallot(transition, goal, { reason })
}

/** What the chain asks for now: validate, checkpoint, finish, or plan on. */
function advance(transition: Transition): void {
  const { state } = transition
  const { phase } = state
  if (phase.type !== 'ring' && phase.type !== 'async') return
  quarantineTick(transition)
  if (phase.type === 'async') closeWhenDue(transition)
  const idle = phase.type === 'ring' ? phase.plannedTo === state.chain.head.v : state.leases.size === 0
  if (phase.type === 'ring') considerUpload(transition)
  if (state.parking !== undefined) return advanceParking(transition, phase)
  if (idle && validationDue(state)) return validate(transition)
  if (idle && trainingIsOver(state)) return finish(transition)
  const paused = pausedBecause(state)
  if (idle && paused !== undefined) return transition.reason(paused)
  if (phase.type === 'async') return grantTraining(transition)
  if (phase.until !== undefined && state.chain.head.v >= phase.until.step) return change(transition, phase)
  topUp(transition, phase)
  if (phase.plannedTo === state.chain.head.v && recallOffRing(transition)) topUp(transition, phase)
  if (checkpointDue(state, transition.now)) askCheckpoint(transition, phase, nextCheckpointVersion(state, phase))
  transition.reason(`${phase.exchange.type} of ${phase.members.length}`)
}

function validate(transition: Transition): void {
  const { state } = transition
  const { phase } = state
  if (phase.type === 'ring') {
    askFor(transition)
    // Members of the ring have the version at hand; others get it from its checkpoint.
    const isSaved = newestCheckpoint(state).version.id === state.chain.head.id
    return grantValidation(transition, phase.members, isSaved ? [...state.members.keys()] : [])
  }
  grantValidation(transition, [...state.members.keys()])
}

/** A checkpoint of the head, from any holder. */
function askFor(transition: Transition): void {
  const { state } = transition
  const { phase, chain } = state
  if (newestCheckpoint(state).version.id === chain.head.id) return
  if (phase.type === 'ring') askCheckpoint(transition, phase, chain.head.v)
  if (phase.type === 'async') askServer(transition, phase)
}

/** The run is over when its last version is durable. */
function finish(transition: Transition): void {
  const { state } = transition
  const { head } = state.chain
  transition.reason(`trained; writing version ${head.v}`)
  askFor(transition)
  if (newestCheckpoint(state).version.id !== head.id) return
  const reason =
    state.config.maxSteps === head.v ? `${head.v} steps are trained` : `all ${state.config.epochs} epochs are trained`
  transition.journal({ type: 'finished', reason })
  state.phase = { type: 'finished' }
  transition.reason(reason)
  transition.note('run', reason)
  transition.broadcast(state.members.keys(), { type: 'finished', version: head, reason })
  transition.effect({ type: 'ended' })
}
