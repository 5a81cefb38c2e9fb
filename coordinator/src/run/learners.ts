// Newcomers that catch up while the ring runs without them, so that the ballot that admits them is short: some members
// keep a copy of a version, newcomers fetch it, and follow the steps since. They are no members before START, and no
// sources (R4, R7).
import { type MemberId, type MessageFrom, PLAN_WINDOW, type VersionRef } from '@starling-grid/protocol'
import type { ChainIndex } from './chain-index.ts'
import { newestCheckpoint } from './journal-replay.ts'
import type { Member, RunPhase, RunState } from './state.ts'
import type { Turn } from './turn.ts'

type Ring = Extract<RunPhase, { type: 'ring' }>

/** What a newcomer is on its way to. */
export interface Learner {
  readonly since: number
  /** nothing more to wait for: it follows, or its state comes at FORM */
  ready: boolean
  /** the committed version that it said to hold */
  held: number | undefined
  /** records that it was told, up to this version, in the generation `gen` */
  told: number
  gen: number
  /** the generation in which its sources were told of it, and these sources: they answer no other member's offer */
  met: { readonly gen: number; readonly sources: readonly MemberId[] } | undefined
}

/**
 * Committed records that a member may lack and still replay them: states are at most five vectors, reduced gradients
 * one each.
 */
export const REPLAYED = 8
/** Members that keep a copy for newcomers: as many as one of these asks at once. */
const COPIES = 3
/** ms that a copy may be old: then it is further behind than a new one takes to make */
const COPY_MS = 30_000
/** Steps that it may be behind: members keep the sums of 64 at most, and more steps follow while it is fetched. */
const COPY_STEPS = PLAN_WINDOW / 2
/**
 * ms for copies to be made before they are asked for at a later version, once the one that was named is committed: the
 * members had passed it
 */
const COPY_PATIENCE_MS = 2000
/** Steps ahead of C at which a copy is made: no member holds that version yet. Doubles when they had. */
const FIRST_AHEAD = 2

/**
 * It joined a running ring: it learns first. Every member makes version 0 from the seed. `holds`: what it kept of an
 * earlier visit; when that is on the chain it hears so, since it may follow only from what it knows to be committed
 * (R7).
 */
export function beginLearning(turn: Turn, member: Member, holds: VersionRef | undefined): void {
  const { chain } = turn.state
  if (chain.head.v === 0) return
  const near = ifNear(chain, holds)
  member.learner = { since: turn.now, ready: false, held: near?.v, told: 0, gen: 0, met: undefined }
  if (holds === undefined || holds.v === 0) return
  if (chain.has(holds)) turn.send(member.id, { type: 'ack', ...turn.ballot, committed: holds })
  const why = chain.has(holds) ? `is ${chain.head.v - holds.v} behind` : 'is not on the chain'
  turn.note(
    'member',
    near
      ? `${member.name} goes on from version ${holds.v}, which it kept`
      : `${member.name} kept version ${holds.v}, which ${why}: it fetches another`,
  )
}

/** On the chain, and so little behind that the steps since cost less than a copy. */
function ifNear(chain: ChainIndex, held: VersionRef | undefined): VersionRef | undefined {
  return held !== undefined && held.v > 0 && chain.has(held) && chain.head.v - held.v <= REPLAYED ? held : undefined
}

/** Others do not wait for it, unless it takes too long or there are no others. */
export function isLearning({ learner }: Member, { config }: RunState, now: number): boolean {
  return learner !== undefined && !learner.ready && now - learner.since < config.timing.learnMs
}

export function learnersTick(turn: Turn, phase: Ring): void {
  const { state, now } = turn
  const learners = [...state.members.values()].filter(
    (member) => member.learner !== undefined && member.excludedUntil <= now && !phase.members.includes(member.id),
  )
  for (const { id, learner } of learners) if (learner !== undefined) followOn(turn, phase, { id, learner })
  const waiting = learners.filter((member) => isLearning(member, state, now) && member.learner?.gen !== state.gen)
  if (waiting.length === 0) return
  const copy = newestCopy(state, phase, now)
  if (copy === undefined) return askForCopy(turn, phase)
  for (const { id, learner } of waiting) {
    if (learner !== undefined) learner.gen = state.gen
    const coordinatorHolds = newestCheckpoint(state).version.id === copy.version.id
    if (learner !== undefined) introduce(turn, { id, learner }, copy.sources)
    turn.send(id, { type: 'prefetch', ...turn.ballot, version: copy.version, sources: copy.sources, coordinatorHolds })
  }
}

/** Tells it what was committed since, a few times a second at most. */
function followOn(
  turn: Turn,
  phase: Ring,
  { id, learner }: { readonly id: MemberId; readonly learner: Learner },
): void {
  const { chain, gen } = turn.state
  if (learner.held === undefined) return
  if (learner.gen !== gen) learner.told = learner.held // a ballot came between: what it was told last may be lost
  if (learner.told < chain.base.v) return learnAnew(learner)
  learner.gen = gen
  learner.ready = true
  const records = chain.since(learner.told, PLAN_WINDOW)
  if (records.length === 0) return
  learner.told += records.length
  const sources = sourcesOf(turn.state, phase)
  introduce(turn, { id, learner }, sources)
  turn.send(id, { type: 'follow', ...turn.ballot, records, sources })
}

/** Each source hears of the newcomer once a generation, before the newcomer hears of the source. */
function introduce(
  turn: Turn,
  { id, learner }: { readonly id: MemberId; readonly learner: Learner },
  sources: readonly MemberId[],
): void {
  const { gen } = turn.state
  const known = learner.met?.gen === gen ? learner.met.sources : []
  const fresh = sources.filter((source) => !known.includes(source))
  if (fresh.length === 0) return
  learner.met = { gen, sources: [...known, ...fresh] }
  turn.broadcast(fresh, { type: 'meet', ...turn.ballot, members: [id] })
}

/** The steps since what it holds are kept no more: it is offered a newer copy. */
function learnAnew(learner: Learner): void {
  Object.assign(learner, { held: undefined, ready: false, gen: 0 })
}

/** Members that a newcomer can link to, the longest here first; they do not change from step to step. */
function sourcesOf({ members }: RunState, phase: Ring): MemberId[] {
  return phase.members.filter((id) => members.has(id) && members.get(id)?.relaysOnly !== true).slice(0, COPIES)
}

/** The newest committed version of which members of this ring keep copies. */
function newestCopy(
  { chain, copies }: RunState,
  phase: Ring,
  now: number,
): { readonly version: VersionRef; readonly sources: MemberId[] } | undefined {
  const here = [...copies].filter(
    ([id, { version, at }]) =>
      phase.members.includes(id) && chain.has(version) && now - at < COPY_MS && chain.head.v - version.v <= COPY_STEPS,
  )
  const newest = here.reduce<VersionRef | undefined>(
    (best, [, { version }]) => (best === undefined || version.v > best.v ? version : best),
    undefined,
  )
  return (
    newest && { version: newest, sources: here.filter(([, { version }]) => version.v === newest.v).map(([id]) => id) }
  )
}

function askForCopy(turn: Turn, phase: Ring): void {
  const { state, now } = turn
  const { head } = state.chain
  const asked = phase.copyAsked
  if (asked !== undefined && (head.v < asked.v || now - asked.at < COPY_PATIENCE_MS)) return
  const ahead = asked === undefined ? FIRST_AHEAD : Math.min(2 * asked.ahead, PLAN_WINDOW)
  const v = Math.min(phase.plannedTo, head.v + ahead)
  phase.copyAsked = { ahead, v, at: now }
  turn.broadcast(sourcesOf(state, phase), { type: 'copy-at', ...turn.ballot, v })
}

export function copied({ state, now }: Turn, member: MemberId, { version }: MessageFrom<'copied'>): void {
  if (state.phase.type === 'ring' && state.phase.members.includes(member))
    state.copies.set(member, { version, at: now })
}

/** What is not on the chain is nothing: its state comes at FORM, as that of one that could not fetch any. */
export function prefetched(turn: Turn, member: MemberId, { version }: MessageFrom<'prefetched'>): void {
  const learner = turn.state.members.get(member)?.learner
  if (learner === undefined) return
  if (version === null && learner.held !== undefined) return learnAnew(learner)
  learner.ready = true
  learner.held = version !== null && turn.state.chain.has(version) ? version.v : undefined
  learner.told = learner.held ?? 0
}

/**
 * What it holds now is what it says. It may not know yet that all of it is committed, and follows from what is (R7).
 */
export function claimed(turn: Turn, member: Member, held: VersionRef | undefined): void {
  const { learner } = member
  if (learner === undefined) return
  const { chain, phase } = turn.state
  const near = ifNear(chain, held)
  learner.held = near?.v
  if (near !== undefined && phase.type === 'ring')
    turn.send(member.id, { type: 'ack', ...turn.ballot, committed: near })
}
