// A step that does not end (R17). All members are asked how far they are, and the one that holds the others up is left
// out. What a member says of itself is believed at once: it still computes, although others have contributed. What it
// says of another proves nothing of either. The pair is kept apart or relayed, as a bad link is. A member in such pairs
// with two others is out.
import type { MemberId, MessageFrom } from '@starling-grid/protocol'
import { validationDue } from '../history/validation.ts'
import { isRelayed } from '../links/generation-links.ts'
import { noteFailure } from '../links/link-health.ts'
import { trainingIsOver } from '../queue/scheduler.ts'
import { own, type RingPhase, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { exclude, speedsOf } from './membership.ts'
import { muteDonors } from './rebalance.ts'

type Standing = Pick<MessageFrom<'standing'>, 'stage' | 'received' | 'waitsFor'>

declare module '../state.ts' {
  interface Slices {
    stalls: Stalls
  }
}

/** Of the running generation. */
export interface Stalls {
  /** who holds up the step under way, and times its expected time that is borne before it is asked */
  inquiry: Inquiry | undefined
  patience: number
}

const anew = (): Stalls => ({ inquiry: undefined, patience: 1 })

/** One question about a step, and what came of it. */
interface Inquiry {
  readonly step: number
  readonly askedAt: number
  readonly answers: Map<MemberId, Standing>
  /** frames that all together had received when they were asked before */
  readonly receivedBefore: number | undefined
  /** ms: when to ask again; undefined: answers are awaited */
  nextAt: number | undefined
}

/** Times the time that a step is expected to take, or was measured to take. */
const PATIENCE = 3
/**
 * Times `contributeMs` that a step is planned to take at most, in a round for each of its inner steps. Members claim
 * their speeds: one that claims next to none would make any silence a part of the plan.
 */
const LONGEST_PLANNED = 12
/** Times that again for a member which has not held a step yet: it fetches its first shards and builds its kernels. */
const FIRST_STEP_PATIENCE = 2
/** Doublings of the patience after which a majority that computes is left out as well. */
const MOST_PATIENCE = 4
/** ms for answers: a member that is alive answers a ping in that time, too */
const ANSWER_MS = 4000
/** ms between two looks at frames that should move: one frame of 60 KiB at 150 kbit/s */
const FRAMES_MS = 3500
/** Times the wait before members are asked who holds a step up, after which a ballot opens without a culprit. */
const STALLS = 4

export const stalls = {
  initial: () => ({ stalls: anew() }),
  hear: { standing: onStanding },
  tick: stallTick,
  started: ({ state }) => void Object.assign(own(state, 'stalls'), anew()),
} satisfies Aspect

/** ms without a commit after which members are asked who holds the step up. */
function contributeMs(state: RunState, phase: RingPhase): number {
  const blocks = phase.planned.get(state.chain.head.v + 1)?.length ?? 0
  const speed = speedsOf(state, phase.members).reduce((sum, one) => sum + one, 0)
  const { config, health, mode, stalls } = state
  const claimedMs = speed > 0 ? (1000 * blocks * config.blockSamples) / speed : 0
  const longestMs = LONGEST_PLANNED * config.timing.contributeMs * (mode === 'local' ? config.roundSteps : 1)
  const measuredMs = Math.max(health.recordMs, health.pace?.recordMs ?? 0)
  const expectedMs = Math.max(Math.min(claimedMs, longestMs), measuredMs)
  return stalls.patience * Math.max(config.timing.contributeMs, PATIENCE * expectedMs)
}

function stallTick(transition: Transition): void {
  const { state, now } = transition
  const { phase } = state
  if (phase.type !== 'ring') return
  const { timing, roundSteps } = state.config
  const stallMs = Math.max(
    timing.stallMs * (state.mode === 'local' ? roundSteps : 1),
    STALLS * contributeMs(state, phase),
  )
  const working = phase.plannedTo > state.chain.head.v || (trainingIsOver(state) && !validationDue(state))
  if (working && now - phase.progressAt > stallMs) return onStall(transition, phase, stallMs)
  inquire(transition, phase)
}

/** Members of a larger ring were asked before. One that is alone is asked nothing, and makes room where others wait. */
function onStall(transition: Transition, { members }: RingPhase, stallMs: number): void {
  const reason = `no progress for ${stallMs / 1000} s`
  const [only] = members
  if (only !== undefined && members.length === 1 && transition.state.members.size > 1) exclude(transition, only, reason)
  transition.enqueue({ type: 'ballot', reason, trouble: true })
}

function inquire(transition: Transition, phase: RingPhase): void {
  const { state, now } = transition
  const step = state.chain.head.v + 1
  const stalls = own(state, 'stalls')
  if (stalls.inquiry !== undefined && stalls.inquiry.step !== step) Object.assign(stalls, anew())
  const { inquiry } = stalls
  if (phase.members.length < 2 || !phase.planned.has(step) || step > (phase.lastStep?.step ?? step)) return
  if (inquiry !== undefined && inquiry.nextAt === undefined)
    return now - inquiry.askedAt < ANSWER_MS ? undefined : judge(transition, phase, inquiry)
  if (now < (inquiry?.nextAt ?? phase.progressAt + contributeMs(state, phase))) return
  stalls.inquiry = {
    step,
    askedAt: now,
    answers: new Map(),
    receivedBefore: inquiry === undefined ? undefined : receivedOf(inquiry),
    nextAt: undefined,
  }
  transition.broadcast(phase.members, { type: 'inquire', ...transition.ballot, step })
}

function onStanding(
  transition: Transition,
  member: MemberId,
  { step, stage, received, waitsFor }: MessageFrom<'standing'>,
): void {
  const { phase } = transition.state
  if (phase.type !== 'ring' || !phase.members.includes(member)) return
  const { inquiry } = own(transition.state, 'stalls')
  if (inquiry?.step !== step || inquiry.nextAt !== undefined) return
  inquiry.answers.set(member, { stage, received, waitsFor })
  if (inquiry.answers.size === phase.members.length) judge(transition, phase, inquiry)
}

function receivedOf({ answers }: Inquiry): number {
  return [...answers.values()].reduce((sum, { received }) => sum + received, 0)
}

function judge(transition: Transition, phase: RingPhase, inquiry: Inquiry): void {
  const { state, now } = transition
  const { answers, receivedBefore } = inquiry
  const reporting = (stage: Standing['stage']): MemberId[] =>
    phase.members.filter((id) => answers.get(id)?.stage === stage)
  const mute = new Set([
    ...muteDonors(state, phase),
    ...(answers.size === 0 ? [] : phase.members.filter((id) => !answers.has(id))),
  ])
  if (mute.size > 0) return leaveOut(transition, phase, [...mute], 'it did not answer')
  const computing = reporting('computing')
  if (computing.length > 0) return judgeComputing(transition, phase, computing)
  if (receivedBefore === undefined || receivedOf(inquiry) > receivedBefore) {
    inquiry.nextAt = now + FRAMES_MS
    return
  }
  const idle = reporting('reducing').filter((id) => answers.get(id)?.waitsFor.length === 0)
  if (idle.length > 0 && idle.length < phase.members.length)
    return leaveOut(transition, phase, idle, 'it has all of it and does not hold it')
  const pairs = suspectPairs(phase, inquiry)
  for (const pair of pairs)
    state.health.linkFailures = noteFailure(
      state.health.linkFailures,
      { pair, why: 'stalled', relayed: isRelayed(phase, ...pair), generation: state.generation, at: now },
      { now, halfLifeMs: state.config.timing.linkMemoryMs },
    )
  const names = pairs
    .map((pair) => pair.map((id) => nameOf(state, id)).join(' to '))
    .slice(0, 3)
    .join(', ')
  state.health.disturbedAt = now
  transition.enqueue({
    type: 'ballot',
    reason: `step ${inquiry.step} makes no progress${names === '' ? '' : `: no frames from ${names}`}`,
    trouble: true,
  })
}

/** A few that are late are left out. When most are, the plan was wrong: they get more time, but not for ever. */
function judgeComputing(transition: Transition, phase: RingPhase, computing: readonly MemberId[]): void {
  const { state, now } = transition
  const waitedMs = now - phase.progressAt
  const firstStepMs = FIRST_STEP_PATIENCE * contributeMs(state, phase)
  const late = computing.filter((id) => (state.members.get(id)?.stepsHeld ?? 0) > 0 || waitedMs >= firstStepMs)
  const others = phase.members.length - computing.length
  const stalls = own(state, 'stalls')
  const isJudged = others >= computing.length || (others > 0 && stalls.patience >= MOST_PATIENCE)
  if (isJudged && late.length > 0) return leaveOut(transition, phase, late, 'it does not contribute, and others did')
  if (!isJudged) stalls.patience *= 2
  if (stalls.inquiry !== undefined)
    stalls.inquiry.nextAt = phase.progressAt + (isJudged ? firstStepMs : contributeMs(state, phase))
}

function leaveOut(transition: Transition, phase: RingPhase, ids: readonly MemberId[], why: string): void {
  const { state, now } = transition
  const step = state.chain.head.v + 1
  const seconds = Math.round((now - phase.progressAt) / 1000)
  for (const id of ids) exclude(transition, id, `step ${step} takes ${seconds} s: ${why}`)
  state.health.disturbedAt = now
  transition.enqueue({
    type: 'ballot',
    reason: `${ids.map((id) => nameOf(state, id)).join(' and ')} held step ${step} up for ${seconds} s`,
    trouble: true,
  })
}

/** Which member does not send to which, as far as it shows: the sender first. */
function suspectPairs(phase: RingPhase, { answers }: Inquiry): [MemberId, MemberId][] {
  const { members, exchange } = phase
  const waiting = members.flatMap((id) => {
    const { received = 0, waitsFor = [] } = answers.get(id) ?? {}
    return waitsFor.length === 0
      ? []
      : [
          {
            id,
            received,
            waitsFor: waitsFor.flatMap((rank) =>
              members[rank] === undefined || members[rank] === id ? [] : [members[rank]],
            ),
          },
        ]
  })
  if (exchange.type === 'direct') {
    const edges = waiting.flatMap(({ id, waitsFor }) => waitsFor.map((from): [MemberId, MemberId] => [from, id]))
    // one that waits itself may lack what it needs to send: first those that wait for no other, or for each other
    const first = edges.filter(([from, to]) => !edges.some(([other, waiter]) => waiter === from && other !== to))
    return first.length > 0 ? first : edges
  }
  // what its predecessor holds back reaches the one behind it last of all
  const leastServed = waiting.reduce<(typeof waiting)[number] | undefined>(
    (best, one) => (best === undefined || one.received < best.received ? one : best),
    undefined,
  )
  const from = leastServed && members[(members.indexOf(leastServed.id) + members.length - 1) % members.length]
  return leastServed === undefined || from === undefined ? [] : [[from, leastServed.id]]
}

function nameOf({ members }: RunState, id: MemberId): string {
  return members.get(id)?.name ?? id.slice(0, 8)
}
