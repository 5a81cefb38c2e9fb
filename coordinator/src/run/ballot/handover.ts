// A5: ring → async. One holder of the decided version uploads it, and the other holders say their digests of it. Only a
// state that a second member vouches for becomes the parameter server's. A run of one member has no second (decision
// 0003).
import type { MemberId } from '@starling-grid/protocol'
import { uploadMsOf, votesOn } from '../history/checkpoints.ts'
import { expectDigests } from '../history/digests.ts'
import { newestCheckpoint } from '../journal-replay.ts'
import type { RunInput, RunPhase, RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { lastWitnessed, namesOf } from './agreement.ts'
import type { ValidClaim } from './claims.ts'
import { doubtersOf, isDerived, judge } from './derived-state.ts'
import type { Agreement } from './majority.ts'
import { rewind } from './rewind.ts'

type Handover = Extract<RunPhase, { type: 'handover' }>

/** ms for the other holders to say their digests once the upload is there */
const DIGESTS_MS = 5000
/**
 * Rings that are formed, one after the other, so that a version gets a second holder before the run goes back instead.
 */
const FORMS_FOR_A_SECOND = 2

export const handover = {
  on: { 'upload-begun': onHandoverBegun, uploaded: onHandedOver, 'state-derived': considerHandover },
  hear: { 'version-digest': considerHandover },
  tick: handoverTick,
  memberLost: (transition, { id, name }) => {
    const { phase } = transition.state
    if (phase.type === 'handover' && phase.source === id)
      transition.enqueue({ type: 'ballot', reason: `${name} left while handing over`, trouble: false })
  },
} satisfies Aspect

/**
 * A5: the server needs parameters and optimizer state of a version that at least two members hold. False: none of its
 * holders can bring them (each was asked and did not upload). Or it has one holder alone, so a ring has to make more
 * holders first.
 */
export function handOver(transition: Transition, valid: readonly ValidClaim[], best: ValidClaim): boolean {
  const { state, now } = transition
  const newest = newestCheckpoint(state)
  const held = newest.version
  const chosen = highestHeldTwice(state, valid) ?? best
  const isSaved = chosen.version.id === held.id && doubtersOf(state, newest).length === 0
  if (isSaved) {
    transition.enqueue({ type: 'enter-async' })
    return true
  }
  const holders = valid.filter((claim) => claim.version.id === chosen.version.id).map((claim) => claim.member)
  if (holders.length === 1 && !isAlone(state)) return withoutSecond(transition)
  const source = holders.find((id) => (state.members.get(id)?.cannotUploadUntil ?? 0) <= now)
  if (source === undefined) return false
  state.phase = {
    type: 'handover',
    since: now,
    target: chosen.version,
    records: chosen.records,
    holders,
    source,
    begunAt: undefined,
    upload: undefined,
  }
  expectDigests(state, chosen.version.v)
  transition.reason(`handing version ${chosen.version.v} over to the parameter server`)
  transition.broadcast(holders, {
    type: 'upload-request',
    ...transition.ballot,
    version: chosen.version,
    uploader: source,
  })
  return true
}

function isAlone({ members }: RunState): boolean {
  return members.size <= 1
}

/**
 * A step that one member alone holds is not committed (R8, R11): others may go on without it. What a member revived is
 * committed by now, and no earlier version will do (A5).
 */
function highestHeldTwice(state: RunState, claims: readonly ValidClaim[]): ValidClaim | undefined {
  const newestId = newestCheckpoint(state).version.id
  const valid = claims.filter(({ version }) => version.v >= state.chain.head.v)
  const vouched = valid.filter(
    ({ version }) => version.id === newestId || valid.filter((claim) => claim.version.id === version.id).length > 1,
  )
  return vouched.toSorted((a, b) => b.version.v - a.version.v)[0]
}

/** The last committed version is held by one member: a ring makes a second holder, and when that fails all go back. */
function withoutSecond(transition: Transition): boolean {
  const { state } = transition
  if (state.health.formsForASecond < FORMS_FOR_A_SECOND) {
    state.health.formsForASecond++
    return false
  }
  state.health.formsForASecond = 0
  const to = lastWitnessed(state)
  if (to.version.v >= state.chain.head.v) transition.enqueue({ type: 'enter-async' })
  else rewind(transition, 'no second member vouches for what followed', { to, final: true })
  return true
}

function onHandoverBegun({ state, now }: Transition, { member }: { readonly member: MemberId }): void {
  const { phase } = state
  if (phase.type === 'handover' && phase.source === member) phase.begunAt ??= now
}

function onHandedOver(transition: Transition, upload: Extract<RunInput, { type: 'uploaded' }>): void {
  const { member } = upload
  const { phase } = transition.state
  if (phase.type !== 'handover') return
  if (phase.source !== member || upload.version.id !== phase.target.id)
    return transition.note('refusal', `an upload of version ${upload.version.v} came too late`)
  phase.upload = { version: upload.version, blob: upload.blob, bytes: upload.bytes, from: member, at: transition.now }
  considerHandover(transition)
}

/** The upload and another holder agree, and none that is here differs: it is taken. All answers are awaited first. */
function considerHandover(transition: Transition): void {
  const { state, now } = transition
  const { phase } = state
  if (phase.type !== 'handover' || phase.upload === undefined) return
  const { upload, holders } = phase
  const votes = votesOn(state, upload)
  for (const id of votes.keys()) if (!holders.includes(id)) votes.delete(id)
  const isHeard = holders.every((id) => votes.has(id) || !state.members.has(id)) || now - upload.at > DIGESTS_MS
  if (!isHeard) return
  const isOneState = new Set(votes.values()).size === 1
  if (isOneState && (votes.size > 1 || isAlone(state))) return take(transition, upload, votes.size)
  const agreement = judge(transition, { version: upload.version, records: phase.records, said: votes })
  if (agreement !== undefined) settleHandover(transition, phase, upload, agreement)
}

/** The holders differ, or one alone said what it holds: its true state decides, or who were more. */
function settleHandover(
  transition: Transition,
  phase: Handover,
  upload: NonNullable<Handover['upload']>,
  { digest, most, few, isClear }: Agreement,
): void {
  const { state } = transition
  const isTrue = isDerived(state, upload.version, upload.blob)
  if (few.length === 0 && isTrue) return take(transition, upload, most.length)
  if (few.length === 0) return nextSource(transition, phase, 'no other holder said what it holds')
  transition.note(
    'refusal',
    `${namesOf(state, isClear ? few : [...most, ...few])} hold${few.length === 1 && isClear ? 's' : ''} another ` +
      `state of version ${upload.version.v} than ${isClear ? namesOf(state, most) : 'each other'}`,
  )
  if (isClear && digest === upload.blob) return take(transition, upload, most.length)
  if (isClear) return nextSource(transition, phase, 'other holders agree on another state')
  const to = lastWitnessed(state)
  if (to.version.v < state.chain.head.v) return rewind(transition, 'its holders disagree', { to, final: true })
  transition.enqueue({ type: 'enter-async' })
}

function take(
  transition: Transition,
  { version, blob, bytes }: NonNullable<Handover['upload']>,
  agreeing: number,
): void {
  transition.state.health.formsForASecond = 0
  transition.enqueue({ type: 'enter-async', handed: { version, blob, bytes, agreeing, members: agreeing } })
}

function nextSource(transition: Transition, phase: Handover, why: string): void {
  const { state, now } = transition
  const source = state.members.get(phase.source)
  if (source !== undefined) source.cannotUploadUntil = now + state.config.timing.excludeMs
  transition.enqueue({ type: 'ballot', reason: `version ${phase.target.v} was not handed over: ${why}`, trouble: true })
}

/** An upload that began may take as long as its bytes need. */
function handoverTick(transition: Transition): void {
  const { state, now } = transition
  const { phase } = state
  if (phase.type !== 'handover') return
  if (phase.upload !== undefined) return considerHandover(transition)
  const { formMs } = state.config.timing
  const limit = phase.begunAt === undefined ? formMs : Math.max(formMs, uploadMsOf(state, phase.source))
  if (now - phase.since >= limit) nextSource(transition, phase, 'it took too long')
}
