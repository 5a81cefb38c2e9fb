// START HERE: the coordinator's decisions about one run. `decide(state, input, now)` changes the state it is given and
// returns what is to be done and why. No I/O, no clock, no randomness: the same state, input and time always decide the
// same.
import type { MemberId } from '@starling-grid/protocol'
import { closeWhenDue } from './accumulator.ts'
import { asyncTick, askServer, enterAsync, serverCheckpointed, serverLost } from './async.ts'
import { confirmed, decide as decideBallot, enterRing, openBallot, stateAnswered } from './ballot.ts'
import {
  askCheckpoint,
  checkpointDue,
  considerUpload,
  digestReported,
  nextCheckpointVersion,
  uploadBegun,
  uploaded,
  uploadFailed,
} from './checkpoints.ts'
import { checkpointDamaged } from './damaged-checkpoint.ts'
import { guestKnown, recallGuests } from './guests.ts'
import { considerHandover, handedOver, handoverBegun, handoverTick } from './handover.ts'
import { newestCheckpoint } from './journal-replay.ts'
import { copied, prefetched } from './learners.ts'
import { gaveBack, grantTraining, leaseRequested, pushed, pushRefused } from './leases.ts'
import { memberJoined, memberLost } from './membership.ts'
import { nextMode } from './mode-policy.ts'
import { advanceParking, park, parkingTick } from './parking.ts'
import { checkpointDigested, proofTold } from './proofs.ts'
import { blocksUnreadable, pausedBecause, quarantineTick, shardChecked } from './quarantine.ts'
import { promiseHeard } from './restored.ts'
import { rewind } from './rewind.ts'
import {
  aborted,
  abortedBefore,
  change,
  formTimedOut,
  held,
  linkRestored,
  memberLeaving,
  ringTick,
  topUp,
} from './ring.ts'
import { currentEpoch, trainingIsOver } from './scheduler.ts'
import { blocksReleased, memberBehind, progressTold } from './share-moves.ts'
import { standingTold } from './stalls.ts'
import type { Decision, Effect, RunInput, RunMessage, RunPhase, RunState } from './state.ts'
import { type FollowUp, Turn } from './turn.ts'
import { grantValidation, validated, validationDue } from './validation.ts'

export function decide(state: RunState, input: RunInput, now: number): Decision {
  const turn = new Turn(state, now)
  try {
    take(turn, input)
    for (let next = turn.followUps.shift(); next !== undefined; next = turn.followUps.shift()) follow(turn, next)
  } catch (cause) {
    throw new HalfDecided(turn.effects, cause)
  }
  return { effects: turn.effects, reason: state.phaseReason }
}

/** A defect of ours. What was decided before it is in the state, so that its effects have to be carried out (R1). */
export class HalfDecided extends Error {
  readonly effects: readonly Effect[]
  constructor(effects: readonly Effect[], cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause })
    this.effects = effects
  }
}

function take(turn: Turn, input: RunInput): void {
  switch (input.type) {
    case 'coordinator-started':
      turn.state.secret = input.secret
      return started(turn)
    case 'member-joined':
      return memberJoined(turn, input.member, input)
    case 'member-lost':
      return memberLost(turn, input.member, input)
    case 'member-leaving':
      return memberLeaving(turn, input.member)
    case 'speed': {
      const member = turn.state.members.get(input.member)
      if (member === undefined) return
      member.samplesPerSecond = input.samplesPerSecond
      member.hidden = input.hidden ?? member.hidden
      if (input.linkMs !== undefined) turn.state.health.linkMs.set(input.member, input.linkMs)
      return
    }
    case 'message':
      return heard(turn, input.member, input.message)
    case 'shard-checked':
      return shardChecked(turn, input)
    case 'upload-begun':
      handoverBegun(turn, input.member)
      return uploadBegun(turn, input.member, input.version)
    case 'upload-failed':
      return uploadFailed(turn, input.member, input.version)
    case 'uploaded':
      return turn.state.phase.type === 'handover'
        ? handedOver(turn, input.member, input)
        : uploaded(turn, input.member, input)
    case 'push':
      return pushed(turn, input)
    case 'push-refused':
      return pushRefused(turn, input.push, input.code)
    case 'server-checkpoint':
      return serverCheckpointed(turn, input)
    case 'checkpoint-damaged':
      return checkpointDamaged(turn, input)
    case 'checkpoint-digested':
      return checkpointDigested(turn, input.salt, input.digest)
    case 'server-lost':
      return serverLost(turn, input.reason)
    case 'park':
      return park(turn, input.reason)
    case 'end-with-epoch':
      return endWithEpoch(turn)
    case 'tick':
      parkingTick(turn)
      return tick(turn)
    default:
      input satisfies never
  }
}

/**
 * R2: a restarted coordinator, whose fence is raised in the journal already, opens a new ballot; it never continues an
 * old generation.
 */
function started(turn: Turn): void {
  const { state } = turn
  state.leaseEpoch = state.leasesReserved
  for (const block of state.quarantined) state.asideBefore.add(block)
  const lastRing = [...state.rings.values()].at(-1) ?? []
  if (state.config.off.has('R2') && state.mode === 'ring' && lastRing.length > 0)
    return void enterRing(turn, {
      members: lastRing,
      relayed: [],
      exchange: { type: 'ring', reason: 'as before', costs: null },
      shares: lastRing.map(() => 1),
    })
  if (state.finished !== undefined) {
    state.phase = { type: 'finished' }
    return turn.reason(state.finished)
  }
  if (state.gen === 0) return turn.reason('waiting for volunteers')
  if (state.mode === 'async') return restartAsync(turn)
  openBallot(turn, 'ring', {
    reason: 'the coordinator started again',
    waitMs: state.config.timing.rejoinMs,
    wait: lastRing,
  })
}

/** A4: what the parameter server had beyond its last checkpoint is gone with the process. */
function restartAsync(turn: Turn): void {
  const { state } = turn
  if (state.config.off.has('A4')) return turn.then({ type: 'enter-async' })
  if (newestCheckpoint(state).version.v < state.chain.head.v) return rewind(turn, 'the parameter server restarted')
  turn.then({ type: 'ballot', reason: 'the coordinator started again', trouble: false })
}

/** Every message carries owner and generation; older ones are ignored (R3, R11). */
function heard(turn: Turn, member: MemberId, message: RunMessage): void {
  if ('gen' in message && message.owner !== turn.state.owner) return
  if ('gen' in message && message.gen !== turn.state.gen)
    return message.type === 'abort' ? abortedBefore(turn, member, message) : undefined
  switch (message.type) {
    case 'state':
      return stateAnswered(turn, member, message)
    case 'promised':
      return promiseHeard(turn, member, message)
    case 'copied':
      return copied(turn, member, message)
    case 'prefetched':
      return prefetched(turn, member, message)
    case 'proof':
      return proofTold(turn, member, message)
    case 'confirm':
      return confirmed(turn, member, message)
    case 'held':
      return held(turn, member, message)
    case 'abort':
      return aborted(turn, member, message)
    case 'behind':
      return memberBehind(turn, member, message)
    case 'progress':
      return progressTold(turn, member, message)
    case 'standing':
      return standingTold(turn, member, message)
    case 'released':
      return blocksReleased(turn, member, message)
    case 'guest-known':
      return guestKnown(turn, member, message)
    case 'link-restored':
      return linkRestored(turn, member, message)
    case 'version-digest':
      digestReported(turn, member, message)
      return considerHandover(turn)
    case 'validated':
      return validated(turn, member, message)
    case 'unreadable':
      return blocksUnreadable(turn, member, message)
    case 'gave-back':
      return gaveBack(turn, member, message)
    case 'lease-request':
      return leaseRequested(turn, member, message)
    default:
      message satisfies never
  }
}

/** What is begun is finished: R13 keeps plans inside an epoch, so no block is left half way and none is lost. */
function endWithEpoch(turn: Turn): void {
  const { state } = turn
  const epochs = currentEpoch(state) + 1
  if (state.finished !== undefined || epochs >= state.config.epochs) return
  turn.journal({ type: 'epochs', epochs })
  turn.note('run', `the owner ends the run with epoch ${epochs}`)
  turn.then({ type: 'advance' })
}

function tick(turn: Turn): void {
  const { state, now } = turn
  const { phase } = state
  const { timing } = state.config
  switch (phase.type) {
    case 'freeze':
      return turn.then({ type: 'decide' })
    case 'form':
      return formTimedOut(turn, phase)
    case 'ring':
      return ringTick(turn, phase)
    case 'async':
      return asyncTick(turn, phase)
    case 'lost':
      if (now - phase.since >= timing.lostMs) rewind(turn, 'no member came back with a newer version')
      return
    case 'handover':
    case 'settle':
      return modeChangeTick(turn, phase)
    case 'waiting':
      if (state.members.size >= state.config.minVolunteers && state.members.size > 0)
        turn.then({ type: 'ballot', reason: 'volunteers are ready', trouble: false })
      return
    case 'finished':
      return
    default:
      phase satisfies never
  }
}

function modeChangeTick(turn: Turn, phase: Extract<RunPhase, { type: 'handover' | 'settle' }>): void {
  if (phase.type === 'handover') return handoverTick(turn, phase)
  if (turn.now - phase.since < turn.state.config.timing.formMs) return
  turn.then({ type: 'ballot', reason: 'the change of mode took too long', trouble: true })
}

function follow(turn: Turn, next: FollowUp): void {
  switch (next.type) {
    case 'ballot':
      return ballot(turn, next)
    case 'decide':
      return decideBallot(turn)
    case 'advance':
      return advance(turn)
    case 'enter-async':
      return enterAsync(turn, next.handed)
    default:
      next satisfies never
  }
}

function ballot(turn: Turn, { reason, trouble }: Extract<FollowUp, { type: 'ballot' }>): void {
  const { state, now } = turn
  if (state.phase.type === 'finished') return
  if (trouble) state.health.consecutiveAborts++
  const next = nextMode(now, state.health, state.mode, state.config)
  const fallBack = next.mode === 'async' && !state.config.off.has('R17')
  const goal = state.mode === 'async' || fallBack ? 'async' : 'ring'
  if (goal === 'async' && state.mode !== 'async') state.modeReason = next.reason
  openBallot(turn, goal, { reason })
}

/** What the chain asks for now: validate, checkpoint, finish, or plan on. */
function advance(turn: Turn): void {
  const { state } = turn
  const { phase } = state
  if (phase.type !== 'ring' && phase.type !== 'async') return
  quarantineTick(turn)
  if (phase.type === 'async') closeWhenDue(turn)
  const idle = phase.type === 'ring' ? phase.plannedTo === state.chain.head.v : state.leases.size === 0
  if (phase.type === 'ring') considerUpload(turn)
  if (state.parking !== undefined) return advanceParking(turn, phase)
  if (idle && validationDue(state)) return validate(turn)
  if (idle && trainingIsOver(state)) return finish(turn)
  const paused = pausedBecause(state)
  if (idle && paused !== undefined) return turn.reason(paused)
  if (phase.type === 'async') return grantTraining(turn)
  if (phase.until !== undefined && state.chain.head.v >= phase.until.step) return change(turn, phase)
  topUp(turn, phase)
  if (phase.plannedTo === state.chain.head.v && recallGuests(turn)) topUp(turn, phase)
  if (checkpointDue(state, turn.now)) askCheckpoint(turn, phase, nextCheckpointVersion(state, phase))
  turn.reason(`${phase.exchange.type} of ${phase.members.length}`)
}

function validate(turn: Turn): void {
  const { state } = turn
  const { phase } = state
  if (phase.type === 'ring') {
    askFor(turn)
    // Members of the ring have the version at hand; others get it from its checkpoint.
    const isSaved = newestCheckpoint(state).version.id === state.chain.head.id
    return grantValidation(turn, phase.members, isSaved ? [...state.members.keys()] : [])
  }
  grantValidation(turn, [...state.members.keys()])
}

/** A checkpoint of the head, from any holder. */
function askFor(turn: Turn): void {
  const { state } = turn
  const { phase, chain } = state
  if (newestCheckpoint(state).version.id === chain.head.id) return
  if (phase.type === 'ring') askCheckpoint(turn, phase, chain.head.v)
  if (phase.type === 'async') askServer(turn, phase)
}

/** The run is over when its last version is durable. */
function finish(turn: Turn): void {
  const { state } = turn
  const { head } = state.chain
  turn.reason(`trained; writing version ${head.v}`)
  askFor(turn)
  if (newestCheckpoint(state).version.id !== head.id) return
  const reason =
    state.config.maxSteps === head.v ? `${head.v} steps are trained` : `all ${state.config.epochs} epochs are trained`
  turn.journal({ type: 'finished', reason })
  state.phase = { type: 'finished' }
  turn.reason(reason)
  turn.note('run', reason)
  turn.broadcast(state.members.keys(), { type: 'finished', version: head, reason })
  turn.effect({ type: 'ended' })
}
