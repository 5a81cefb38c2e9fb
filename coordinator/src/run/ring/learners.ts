// Newcomers that catch up while the ring runs without them, so that the ballot that admits them is short. Some members
// keep a copy of a version, newcomers fetch it, and follow the steps since. They are no members before START, and no
// sources (R4, R7).
import { type MemberId, type MessageFrom, PLAN_WINDOW, type Sha256, type VersionRef } from '@starling-grid/protocol'
import {
  askProof,
  onProofFailed,
  isProven,
  mayProve,
  nextSalt,
  proofsTick,
  proveByCheckpoint,
  voiceHeard,
  wouldBeNeighbours,
} from '../ballot/proofs.ts'
import { newestCheckpoint } from '../journal-replay.ts'
import type { Chain } from '../queue/chain-index.ts'
import { type DeepReadonly, type Member, own, type RingPhase, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { known, type Learner, newcomer } from './newcomer.ts'

declare module '../state.ts' {
  interface Slices {
    copying: Copying
  }
}

/** Versions that members keep for newcomers. */
export interface Copying {
  /** the version that copies were asked for at in this generation, when, and how many steps ahead that was */
  asked:
    | { readonly v: number; readonly ahead: number; readonly at: number; readonly salt: Sha256; made: boolean }
    | undefined
  readonly copies: Map<
    MemberId,
    { readonly version: VersionRef; readonly at: number; readonly salt: Sha256; readonly digest: Sha256 }
  >
}

export const learners = {
  initial: () => ({ copying: { asked: undefined, copies: new Map() } }),
  hear: { copied: onCopied, prefetched: onPrefetched },
  tick: learnersTick,
  memberLost: ({ state }, { id }) => void own(state, 'copying').copies.delete(id),
  started: ({ state }, members) => {
    own(state, 'copying').asked = undefined
    for (const id of members) if (known(state, id).learner !== undefined) newcomer(state, id).learner = undefined
  },
} satisfies Aspect

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
 * ms for copies to be made once the named version is committed. Then they are asked for at a later one: the members had
 * passed it
 */
const COPY_PATIENCE_MS = 2000
/** Steps ahead of C at which a copy is made: no member holds that version yet. Doubles when they had. */
const FIRST_AHEAD = 2
/** ms without news of what it was told, after which it is told again: it may have got it before it knew its place */
const TELL_AGAIN_MS = 10_000
/** Times in a row that a proven newcomer could not follow the steps, after which its state comes at FORM. */
const MOST_LOSSES = 3
/** ms without a commit after which the version that members hold now is copied */
const SLOW_STEP_MS = 2000
/**
 * ms that the members of a ballot wait at most for what an admitted newcomer lacks: about what the ballot costs anyway.
 * A newcomer that needs more stays beside the ring until it is nearer.
 */
const CATCH_UP_MS = 2000

/**
 * A volunteer joined a running ring: it learns first. `holds` is the version it kept from an earlier visit. If that
 * version is on the chain the learner is told so: it may follow only from a committed version (R7).
 */
export function beginLearning(transition: Transition, member: Member, holds: VersionRef | undefined): void {
  const { chain } = transition.state
  const near = ifNear(chain, holds)
  newcomer(transition.state, member.id).learner = {
    since: transition.now,
    ready: false,
    held: near?.v,
    lost: -1,
    losses: 0,
    fetchAt: transition.now,
    fetchMs: undefined,
    newsAt: transition.now,
    stepMs: undefined,
    told: 0,
    generation: 0,
    met: undefined,
  }
  if (holds === undefined || holds.v === 0) return
  if (chain.has(holds)) transition.send(member.id, { type: 'ack', ...transition.ballot, committed: holds })
  const why = chain.has(holds) ? `is ${chain.head.v - holds.v} behind` : 'is not on the chain'
  transition.note(
    'member',
    near
      ? `${member.name} goes on from version ${holds.v}, which it kept`
      : `${member.name} kept version ${holds.v}, which ${why}: it fetches another`,
  )
}

/** On the chain, and so little behind that the steps since cost less than a copy. */
function ifNear(chain: Chain, held: VersionRef | undefined): VersionRef | undefined {
  const isNearby = held !== undefined && held.v > 0 && chain.has(held) && chain.head.v - held.v <= REPLAYED
  return isNearby ? held : undefined
}

/** It is not near enough yet: what it lacks would hold the others up for longer than CATCH_UP_MS. */
export function isLearning({ id }: Member, state: RunState): boolean {
  const { chain } = state
  const { learner } = known(state, id)
  if (learner === undefined || learner.ready) return false
  return learner.held === undefined || catchUpMs(learner, chain.head.v - learner.held) > CATCH_UP_MS
}

/** What a newcomer that caught up beside the ring lacks takes it a moment. */
export function lacksLittle(state: RunState, id: MemberId, behind: number): boolean {
  const { learner } = known(state, id)
  return learner !== undefined && catchUpMs(learner, behind) <= CATCH_UP_MS
}

/** ms that the members of a ballot would wait for it: for the steps since, or for a whole state. */
function catchUpMs(learner: DeepReadonly<Learner>, behind: number): number {
  const { fetchMs = Number.POSITIVE_INFINITY, stepMs = Number.POSITIVE_INFINITY } = learner
  if (behind === 0) return 0
  return behind > REPLAYED ? fetchMs : Math.min(fetchMs, behind * stepMs)
}

function learnersTick(transition: Transition): void {
  const { state, now } = transition
  const { phase } = state
  if (phase.type !== 'ring') return
  const outside = [...state.members.values()].filter(
    (member) => member.excludedUntil <= now && !phase.members.includes(member.id),
  )
  for (const member of outside)
    if (known(state, member.id).learner === undefined && !isProven(state, member))
      beginLearning(transition, member, undefined)
  const learners = outside.flatMap((member) => {
    const { learner } = newcomer(state, member.id)
    return learner === undefined ? [] : [{ member, learner }]
  })
  for (const { member, learner } of learners) followOn(transition, phase, member, learner)
  proofsTick(transition)
  const waiting = learners.filter(
    ({ learner }) => learner.held === undefined && learner.generation !== state.generation,
  )
  const following = learners.filter(
    ({ member, learner }) =>
      learner.held !== undefined && !known(state, member.id).byCheckpoint && mayProve(state, member, now),
  )
  if (following.length > 0)
    askForCopy(
      transition,
      phase,
      following.map(({ member }) => member),
    )
  for (const { member, learner } of waiting) offer(transition, phase, member, learner)
}

/** It was away from this ballot: it is told everything again. */
export function learnAgain(state: RunState, id: MemberId): void {
  const { learner } = newcomer(state, id)
  if (learner !== undefined) learner.generation = 0
}

/** A version to fetch, and to prove unless that is done. */
function offer(transition: Transition, phase: RingPhase, member: Member, learner: Learner): void {
  const { state, now } = transition
  const { proveAfter, byCheckpoint } = known(state, member.id)
  if (!isProven(state, member) && proveAfter > now) return
  const peers = wouldBeNeighbours(state, phase, member)
  const isAlone = member.relaysOnly === true || sourcesOf(state, phase).length === 0
  if (byCheckpoint || isAlone || state.chain.head.v === 0) {
    learner.generation = state.generation
    learner.fetchAt = now
    introduce(transition, member.id, learner, peers)
    return proveByCheckpoint(transition, member, peers)
  }
  const copy = newestCopy(state, phase, now)
  if (copy === undefined || copy.version.v <= learner.lost) return askForCopy(transition, phase, [])
  learner.generation = state.generation
  learner.fetchAt = now
  const coordinatorHolds = newestCheckpoint(state).version.id === copy.version.id
  introduce(transition, member.id, learner, [...new Set([...copy.sources, ...peers])])
  transition.send(member.id, {
    type: 'prefetch',
    ...transition.ballot,
    version: copy.version,
    sources: copy.sources,
    coordinatorHolds,
  })
  if (!isProven(state, member))
    askProof(transition, member, { v: copy.version.v, salt: copy.salt, peers, checkpoint: undefined })
}

/** Tells it what was committed since, a few times a second at most. One without direct links has no source. */
function followOn(transition: Transition, phase: RingPhase, { id, relaysOnly }: Member, learner: Learner): void {
  const { chain, generation } = transition.state
  if (learner.held === undefined) return
  const isStale = learner.told > learner.held && transition.now - learner.newsAt > TELL_AGAIN_MS
  if (learner.generation !== generation || isStale) beginTelling(transition, id, learner)
  if (learner.told < chain.base.v) return learnAnew(learner)
  learner.generation = generation
  const sources = sourcesOf(transition.state, phase)
  if (relaysOnly === true || sources.length === 0) {
    learner.ready = true
    return
  }
  if (isBetterAnew(chain, learner)) return learnAnew(learner)
  const records = chain.since(learner.told, PLAN_WINDOW)
  if (records.length === 0) return
  if (learner.told === learner.held) learner.newsAt = transition.now
  learner.told += records.length
  introduce(transition, id, learner, sources)
  transition.send(id, { type: 'follow', ...transition.ballot, records, sources })
}

/**
 * What it kept of an earlier visit is so far behind by now that a copy costs less. One that follows as fast as steps
 * are made would stay so far behind.
 */
function isBetterAnew({ head }: Chain, { held, fetchMs }: DeepReadonly<Learner>): boolean {
  return held !== undefined && fetchMs === undefined && head.v - held > REPLAYED
}

/** From what it holds, and that this is committed: it follows from nothing else (R7). */
function beginTelling(transition: Transition, id: MemberId, learner: Learner): void {
  const { held = 0 } = learner
  learner.told = held
  learner.newsAt = transition.now
  const committed = transition.state.chain.at(held)
  if (committed !== undefined) transition.send(id, { type: 'ack', ...transition.ballot, committed })
}

/** Each source is told of the newcomer once a generation, before the newcomer is told of the source. */
function introduce(transition: Transition, id: MemberId, learner: Learner, sources: readonly MemberId[]): void {
  const { generation } = transition.state
  const met = learner.met?.generation === generation ? learner.met.sources : []
  const fresh = sources.filter((source) => !met.includes(source))
  if (fresh.length === 0) return
  learner.met = { generation, sources: [...met, ...fresh] }
  transition.broadcast(fresh, { type: 'meet', ...transition.ballot, members: [id] })
}

/** The steps since what it holds are kept no more: it is offered a newer copy. */
function learnAnew(learner: Learner): void {
  learner.lost = learner.held ?? learner.lost
  Object.assign(learner, { held: undefined, ready: false, generation: 0, told: 0 })
}

/** Members that a newcomer can link to, the longest here first; they do not change from step to step. */
function sourcesOf({ members }: RunState, phase: RingPhase): MemberId[] {
  return phase.members.filter((id) => members.has(id) && members.get(id)?.relaysOnly !== true).slice(0, COPIES)
}

interface Copy {
  readonly version: VersionRef
  readonly salt: Sha256
  readonly sources: MemberId[]
}

/** The newest committed version of which members of this ring keep copies. */
function newestCopy({ chain, copying: { copies } }: RunState, phase: RingPhase, now: number): Copy | undefined {
  const fresh = [...copies].filter(
    ([id, { version, at }]) =>
      phase.members.includes(id) && chain.has(version) && now - at < COPY_MS && chain.head.v - version.v <= COPY_STEPS,
  )
  const newest = fresh.reduce<(typeof fresh)[number] | undefined>(
    (best, one) => (best === undefined || one[1].version.v > best[1].version.v ? one : best),
    undefined,
  )
  if (newest === undefined) return undefined
  const { version, salt } = newest[1]
  return { version, salt, sources: fresh.filter(([, copy]) => copy.salt === salt).map(([id]) => id) }
}

/** `provers`: they follow, and prove this version when they reach it. */
function askForCopy(transition: Transition, phase: RingPhase, provers: readonly Member[]): void {
  const { state, now } = transition
  const { head } = state.chain
  const copying = own(state, 'copying')
  const { asked } = copying
  const isSlow = now - phase.progressAt > SLOW_STEP_MS
  if (asked !== undefined && now - asked.at < COPY_PATIENCE_MS) return
  if (asked !== undefined && head.v < asked.v && !isSlow) return
  const further =
    asked === undefined || asked.made || head.v < asked.v ? FIRST_AHEAD : Math.max(FIRST_AHEAD, 2 * asked.ahead)
  const ahead = isSlow && asked?.v !== head.v ? 0 : Math.min(further, PLAN_WINDOW)
  const v = Math.min(phase.plannedTo, head.v + ahead)
  const salt = nextSalt(state)
  copying.asked = { ahead, v, at: now, salt, made: false }
  transition.broadcast(sourcesOf(state, phase), { type: 'copy-at', ...transition.ballot, v, salt })
  for (const member of provers) {
    const peers = wouldBeNeighbours(state, phase, member)
    const { learner } = newcomer(state, member.id)
    if (learner !== undefined) introduce(transition, member.id, learner, peers)
    askProof(transition, member, { v, salt, peers, checkpoint: undefined })
  }
}

function onCopied(transition: Transition, member: MemberId, { version, digest }: MessageFrom<'copied'>): void {
  const { state, now } = transition
  const { phase } = state
  const { asked, copies } = own(state, 'copying')
  if (phase.type !== 'ring' || !phase.members.includes(member) || asked?.v !== version.v) return
  const { salt } = asked
  asked.made = true
  copies.set(member, { version, at: now, salt, digest })
  voiceHeard(transition, member, { salt, digest })
}

/** What is not on the chain is nothing: its state comes at FORM, as that of one that could not fetch any. */
function onPrefetched(transition: Transition, member: MemberId, { version }: MessageFrom<'prefetched'>): void {
  const { state, now } = transition
  const found = state.members.get(member)
  if (found === undefined) return
  const { learner } = newcomer(state, member)
  if (learner === undefined) return
  if (version === null && learner.held !== undefined) return couldNotFollow(transition, found, learner)
  const isOnChain = version !== null && state.chain.has(version)
  if (!isOnChain && !isProven(state, found)) return onProofFailed(transition, found, 'could not fetch a version')
  if (!isOnChain) {
    learner.ready = true
    learner.held = undefined
    return
  }
  if (learner.held === undefined) learner.fetchMs = now - learner.fetchAt
  else if (version.v > learner.held) learner.stepMs = (now - learner.newsAt) / (version.v - learner.held)
  if (version.v > (learner.held ?? version.v)) learner.losses = 0
  learner.newsAt = now
  learner.held = version.v
  learner.told = Math.max(learner.told, version.v)
}

/** It is offered a newer copy. One that reaches no member which keeps the steps would go on so for ever. */
function couldNotFollow(transition: Transition, member: Member, learner: Learner): void {
  learnAnew(learner)
  if (++learner.losses < MOST_LOSSES || !isProven(transition.state, member)) return
  learner.ready = true
  transition.note(
    'member',
    `${member.name} cannot follow the steps from any member: its state comes at the next ballot`,
  )
}

/**
 * What it holds now is what it says. It may not know yet that all of it is committed, and follows from what is (R7).
 */
export function onClaim(transition: Transition, member: Member, held: VersionRef | undefined): void {
  const { learner } = newcomer(transition.state, member.id)
  if (learner === undefined) return
  const { chain, phase } = transition.state
  // One that fetched a version is admitted by what a fetch takes (isLearning): the ballot that opened for it counts on
  // that.
  // Version 0 counts there too: a ring that has not committed a step yet has no other.
  const isFetched = learner.fetchMs !== undefined && held !== undefined && chain.has(held)
  const near = isFetched ? held : ifNear(chain, held)
  learner.held = near?.v
  learner.newsAt = transition.now
  if (near !== undefined && phase.type === 'ring')
    transition.send(member.id, { type: 'ack', ...transition.ballot, committed: near })
}
