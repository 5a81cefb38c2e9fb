// When a version becomes durable: asked of one member in turn, believed when another member's digest agrees (R15).
import type { MemberId, MessageFrom, Sha256, VersionRef } from '@starling-grid/protocol'
import { differed, latecomer, namesOf } from '../ballot/agreement.ts'
import { derivedState, isDerived, judge } from '../ballot/derived-state.ts'
import { agreementOf } from '../ballot/majority.ts'
import { noteFailedUpload } from '../ballot/stranded.ts'
import { newestCheckpoint } from '../journal-replay.ts'
import { trainingIsOver } from '../queue/scheduler.ts'
import { exclude } from '../ring/membership.ts'
import { type AsyncPhase, own, type Provisional, type RingPhase, type RunInput, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { expectDigests, forgetSaid, noteDigest, saidOf } from './digests.ts'

/**
 * Steps ahead of C that a checkpoint is asked for at least, and ms: no member may have passed it when the message
 * arrives.
 */
const AHEAD_STEPS = 8
const AHEAD_MS = 500
/** ms for members to say their digests once the upload is there: they reached it at about the same time */
const DIGESTS_MS = 2000
const LAST_DIGESTS_MS = 10_000

/** ms for the uploader to encode its state and to begin, and bytes a ms that slow machines encode */
const BEGIN_MS = 3000
const ENCODED_PER_MS = 50_000
/** bytes a ms of a line that was not measured yet: 8 Mbit/s, what a slow home line sends */
const UNMEASURED_RATE = 1000
/** Times what an upload should take that it may take. */
const PATIENCE = 3
/** ms: an upload that takes longer is worth less than a try of another member */
const UPLOAD_MOST_MS = 900_000

/** ms for the server to write its state before it is asked again */
const WRITE_MS = 20_000

/** A version that one member was asked to upload: it stays asked until it is a checkpoint or out of time (R15). */
interface CheckpointAsked {
  readonly v: number
  readonly uploader: MemberId
  /** ms: when its version was on the chain, so that the upload could begin */
  committedAt: number | undefined
  /** ms: when the first byte of the upload came */
  begunAt: number | undefined
  /** broke off, or was refused */
  failed: boolean
}

declare module '../state.ts' {
  interface Slices {
    checkpointing: Checkpointing
  }
}

export interface Checkpointing {
  asked: CheckpointAsked | undefined
  /** an upload that is no checkpoint yet */
  upload: Provisional | undefined
}

/** Which upload an input is about. */
interface UploadOf {
  readonly member: MemberId
  readonly version: VersionRef
}

export const checkpoints = {
  initial: () => ({ checkpointing: { asked: undefined, upload: undefined } }),
  on: { 'upload-begun': onUploadBegun, 'upload-failed': onUploadFailed, uploaded: onUploaded },
  hear: { 'version-digest': onVersionDigest },
  advance: considerUpload,
  frozen: dropUnbegun,
  memberLost: ({ state }, { id }) => {
    if (state.checkpointing.asked?.uploader === id) own(state, 'checkpointing').asked = undefined
  },
  rewound: ({ state }, why) => {
    const { asked } = state.checkpointing
    if (why === 'async' || (asked?.v ?? 0) > state.chain.head.v) own(state, 'checkpointing').asked = undefined
  },
} satisfies Aspect

/** Enough steps or enough time since the newest checkpoint. */
export function checkpointDue(state: RunState, now: number): boolean {
  const newest = newestCheckpoint(state)
  const steps = state.chain.head.v - newest.version.v
  return (
    steps > 0 && (steps >= state.config.timing.checkpointSteps || now - newest.at >= state.config.timing.checkpointMs)
  )
}

/**
 * Asks for a checkpoint at version v, unless one is under way: that one is kept until it is accepted or out of time.
 */
export function askCheckpoint(transition: Transition, phase: RingPhase, v: number): void {
  const { state } = transition
  const { asked } = state.checkpointing
  if (asked !== undefined && isUnderWay(transition, asked)) return
  if (asked !== undefined) onOutOfTime(transition, asked)
  const rank = asked === undefined ? v : phase.members.indexOf(asked.uploader) + 1
  const uploader = phase.members[rank % phase.members.length]
  if (uploader === undefined) return
  own(state, 'checkpointing').asked = {
    v,
    uploader,
    committedAt: state.chain.head.v >= v ? transition.now : undefined,
    begunAt: undefined,
    failed: false,
  }
  expectDigests(state, v)
  transition.broadcast(phase.members, { type: 'checkpoint-at', ...transition.ballot, v, uploader })
}

export function askServer(transition: Transition, phase: AsyncPhase): void {
  if (phase.checkpointAskedAt !== undefined && transition.now - phase.checkpointAskedAt < WRITE_MS) return
  phase.checkpointAskedAt = transition.now
  transition.effect({ type: 'server-checkpoint', version: transition.state.chain.head })
}

/** A checkpoint of the head, from any holder. */
export function askForHead(transition: Transition): void {
  const { phase, chain } = transition.state
  if (newestCheckpoint(transition.state).version.id === chain.head.id) return
  if (phase.type === 'ring') askCheckpoint(transition, phase, chain.head.v)
  if (phase.type === 'async') askServer(transition, phase)
}

/** Not a checkpoint yet, and within its time: until its version is on the chain only the ring's own deadlines count. */
function isUnderWay({ state, now }: Transition, asked: CheckpointAsked): boolean {
  if (asked.failed || asked.v <= newestCheckpoint(state).version.v) return false
  if (asked.v === state.derivedStates.underWay?.version.v) return true
  if (asked.begunAt !== undefined) return now - asked.begunAt < uploadMsOf(state, asked.uploader)
  return asked.committedAt === undefined || now - asked.committedAt < beginMs(state)
}

function beginMs({ config }: RunState): number {
  return Math.min(config.timing.uploadMs, BEGIN_MS + config.versionBytes / ENCODED_PER_MS)
}

/** ms that this member's upload may take: by the bytes of the model and its line as last measured, within bounds. */
export function uploadMsOf({ members, config }: RunState, uploader: MemberId): number {
  const rate = members.get(uploader)?.uploadRate ?? UNMEASURED_RATE
  const expected = (PATIENCE * config.versionBytes) / rate
  return Math.min(Math.max(config.timing.uploadMs, expected), Math.max(config.timing.uploadMs, UPLOAD_MOST_MS))
}

/** Members that are no part of a ring with the asked version begin no upload any more. */
export function dropUnbegun({ state }: Pick<Transition, 'state'>): void {
  if (state.checkpointing.asked?.begunAt === undefined) own(state, 'checkpointing').asked = undefined
}

/** A version within the plan that no member can have passed yet. */
export function nextCheckpointVersion(state: RunState, phase: RingPhase): number {
  const stepMs = state.health.pace?.recordMs
  const steps = stepMs === undefined ? 0 : Math.ceil(AHEAD_MS / Math.max(stepMs, 1))
  return Math.min(phase.plannedTo, state.chain.head.v + Math.max(AHEAD_STEPS, steps))
}

function onUploadBegun({ state, now }: Transition, { member, version }: UploadOf): void {
  const { asked } = own(state, 'checkpointing')
  if (asked?.uploader === member && asked.v === version.v) asked.begunAt ??= now
}

function onUploaded(transition: Transition, upload: Extract<RunInput, { type: 'uploaded' }>): void {
  const { state } = transition
  const { member } = upload
  const { phase } = state
  if (phase.type === 'handover') return // of that version (A5)
  measureUpload(transition, member, upload)
  if (state.mode === 'async' || !state.members.has(member))
    return transition.note('refusal', `an upload of version ${upload.version.v} came too late`)
  if ((state.checkpointing.upload?.version.v ?? 0) > upload.version.v) return
  own(state, 'checkpointing').upload = {
    version: upload.version,
    blob: upload.blob,
    bytes: upload.bytes,
    from: member,
    at: transition.now,
  }
  considerUpload(transition)
}

function measureUpload(
  { state, now }: Transition,
  id: MemberId,
  upload: { readonly version: VersionRef; readonly bytes: number },
): void {
  const { asked } = state.checkpointing
  const member = state.members.get(id)
  if (member === undefined || asked?.begunAt === undefined || asked.uploader !== id || asked.v !== upload.version.v)
    return
  member.uploadRate = upload.bytes / Math.max(1, now - asked.begunAt)
}

/** One that did not begin, broke off, or took the longest time, is a failed try (R17-stranded). */
function onOutOfTime(transition: Transition, asked: CheckpointAsked): void {
  const { state, now } = transition
  measureLate(transition, asked)
  const { v, uploader, committedAt, begunAt, failed } = asked
  if (committedAt === undefined || v <= newestCheckpoint(state).version.v) return
  const isFailed = failed || begunAt === undefined || now - begunAt >= UPLOAD_MOST_MS
  if (isFailed) noteFailedUpload(transition, uploader, state.chain.at(v))
}

/** Out of time: its line is slower than was thought, so that its next try gets longer. */
function measureLate({ state, now }: Transition, { v, uploader, begunAt, failed }: CheckpointAsked): void {
  const member = state.members.get(uploader)
  if (member === undefined || failed || begunAt === undefined || v <= newestCheckpoint(state).version.v) return
  member.uploadRate = state.config.versionBytes / Math.max(1, now - begunAt)
}

/** Another member is asked at once; what this one held is known to it alone. */
function onUploadFailed({ state }: Transition, { member, version }: UploadOf): void {
  const { asked } = own(state, 'checkpointing')
  if (asked?.uploader === member && asked.v === version.v) asked.failed = true
}

function onVersionDigest(
  transition: Transition,
  member: MemberId,
  { version, digest }: MessageFrom<'version-digest'>,
): void {
  const { state } = transition
  if (!mayVouch(state, member)) return
  noteDigest(state, member, version, digest)
  considerUpload(transition)
}

function mayVouch({ phase }: RunState, member: MemberId): boolean {
  return phase.type === 'ring'
    ? phase.members.includes(member)
    : phase.type === 'handover' && phase.holders.includes(member)
}

/** What members hold of the version of this upload: its uploader what it sent, the others what they said. */
export function votesOn(
  state: RunState,
  { version, blob, from }: Pick<Provisional, 'version' | 'blob' | 'from'>,
): Map<MemberId, Sha256> {
  return saidOf(state, version).set(from, blob)
}

/**
 * R15: on the chain at v ≤ C, and another member's digest for that id agrees (a ring of one has no other: decision
 * 0003). All digests are awaited first, as two liars may be quicker than the others; longer for the run's last version.
 */
function considerUpload(transition: Transition): void {
  const { state, now } = transition
  const { asked, upload } = own(state, 'checkpointing')
  if (asked !== undefined && state.chain.head.v >= asked.v) asked.committedAt ??= now
  if (upload === undefined || state.phase.type !== 'ring') return
  if (upload.version.v <= newestCheckpoint(state).version.v) return forget(state)
  const onChain = state.chain.at(upload.version.v)
  if (onChain === undefined) return
  if (onChain.id !== upload.version.id) return forget(state)
  weigh(transition, upload, state.phase.members)
}

function weigh(transition: Transition, upload: Provisional, members: readonly MemberId[]): void {
  const { state, now } = transition
  const votes = votesOn(state, upload)
  const agreement = agreementOf(votes)
  if (agreement === undefined) return
  const isHeard = members.every((id) => votes.has(id))
  if (!isHeard && now - upload.at < (trainingIsOver(state) ? LAST_DIGESTS_MS : DIGESTS_MS)) return
  if (agreement.few.length > 0) return settleUpload(transition, upload, votes)
  const isVouchedFor = votes.size > 1 || members.length === 1
  if (!isVouchedFor || (isOneLeftOut(state, { members, now }) && !isTrue(transition, upload, votes))) return
  accept(transition, { agreeing: votes.size, members: Math.max(members.length, votes.size) })
}

/** A member that worked in a ring is here, and this one is without it for a while: it cannot say what it holds. */
function isOneLeftOut(
  { members: here }: RunState,
  { members, now }: { readonly members: readonly MemberId[]; readonly now: number },
): boolean {
  return [...here.values()].some(
    ({ id, excludedUntil, stepsHeld }) => excludedUntil > now && stepsHeld > 0 && !members.includes(id),
  )
}

/**
 * Those that are left may be liars: the state is derived, as if one doubted it. False: not yet, or it is another. Then
 * the next upload is asked for when this one would be out of time; meanwhile the member that was left out may be back.
 */
function isTrue(transition: Transition, { version, blob }: Provisional, said: ReadonlyMap<MemberId, Sha256>): boolean {
  const { state } = transition
  const derived = derivedState(transition, { version, said, why: 'a member that worked is left out of the ring' })
  if (derived === undefined) return false
  if ('why' in derived || derived.digest === blob) return true
  transition.note(
    'refusal',
    `${namesOf(state, [...said.keys()])} hold another state of version ${version.v} than its own`,
  )
  forgetSaid(state, version, [...said.keys()])
  forget(state)
  return false
}

function forget(state: RunState): void {
  own(state, 'checkpointing').upload = undefined
}

/** Another member is asked at once. */
function dropUpload(state: RunState): void {
  forget(state)
  const { asked } = own(state, 'checkpointing')
  if (asked !== undefined) asked.failed = true
}

/**
 * Those that do not hold the state are named and left out, never the honest uploader. Of two sides as strong, where the
 * state cannot be derived, the coordinator cannot tell which is right.
 */
function settleUpload(transition: Transition, upload: Provisional, said: ReadonlyMap<MemberId, Sha256>): void {
  const { state } = transition
  const agreement = judge(transition, { version: upload.version, said })
  if (agreement === undefined) return
  const { digest, most, few, isClear } = agreement
  const what = `state of version ${upload.version.v}`
  forgetSaid(state, upload.version, few)
  if (!isClear) return tiedUpload(transition, [...most, ...few], what)
  transition.note('refusal', `${namesOf(state, few)} held another ${what} than ${namesOf(state, most)}`)
  differed(transition, few, { what, leaveOut: true })
  if (digest === upload.blob) accept(transition, { agreeing: most.length, members: most.length + few.length })
  else dropUpload(state)
  transition.enqueue({ type: 'ballot', reason: `${few.length} member(s) held another ${what}`, trouble: false })
}

/**
 * CONFIRM of the next ballot compares what they hold now. When they differ in what they say again, the one that came
 * last waits outside.
 */
function tiedUpload(transition: Transition, all: readonly MemberId[], what: string): void {
  const { state } = transition
  dropUpload(state)
  transition.note('refusal', `${namesOf(state, all)} hold a different ${what}, and it cannot be told whose is right`)
  const again = all.filter((id) => (state.members.get(id)?.differed ?? 0) > 0)
  const last = again.length > 1 ? latecomer(state, again) : undefined
  for (const id of all) {
    const member = state.members.get(id)
    if (member !== undefined) member.differed++
  }
  if (last !== undefined) exclude(transition, last, `its ${what} differed again`)
  transition.enqueue({ type: 'ballot', reason: `members hold a different ${what}`, trouble: true })
}

function accept(transition: Transition, support: { readonly agreeing: number; readonly members: number }): void {
  const { upload } = transition.state.checkpointing
  if (upload === undefined) return
  const { version, blob, bytes, from } = upload
  const witnessed = support.agreeing > 1 || isDerived(transition.state, version, blob)
  transition.journal({ type: 'checkpoint', version, blob, bytes, witnessed, ...support })
  transition.note(
    'checkpoint',
    `checkpoint of version ${version.v}${witnessed ? ', confirmed by a second member' : ''}`,
  )
  noteDigest(transition.state, from, version, blob) // others may say another yet
  forget(transition.state)
  transition.enqueue({ type: 'advance' })
}
