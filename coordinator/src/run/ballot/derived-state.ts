// Members that say different states of one version (R15-derived, docs/decisions/0020). The coordinator derives the
// state from the newest checkpoint that is not in doubt. It adds the sums of the steps after it, which their records
// prove. The shell does it (audit/state-derivation.ts). Where it cannot be done, votes decide, and an event says why.
import {
  extend,
  type MemberId,
  type Sha256,
  type StepRecord,
  SUMS_KEPT,
  type VersionRef,
} from '@starling-grid/protocol'
import { saidOf } from '../history/digests.ts'
import { seedCheckpoint } from '../journal-replay.ts'
import { type Checkpoint, type Derived, own, type RunInput, type RunState, type SumStep } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { type Agreement, agreementOf, agreementWith } from './majority.ts'

declare module '../state.ts' {
  interface Slices {
    derivedStates: {
      /** a version whose state is derived now, and since when, ms */
      underWay: { readonly version: VersionRef; readonly since: number } | undefined
      /** what was found of the last ones, by version id */
      readonly known: Map<string, Derived>
    }
  }
}

export const derivedStates = {
  initial: () => ({ derivedStates: { underWay: undefined, known: new Map() } }),
  on: { 'state-derived': onStateDerived },
  tick: derivationTick,
} satisfies Aspect

/** Versions whose derived states are remembered. */
const REMEMBERED = 8
/** ms after which votes decide although the shell, which has a shorter limit, did not answer */
const ANSWER_MS = 150_000

export interface DoubtedState {
  readonly version: VersionRef
  /** uncommitted steps that lead from the committed version to this one */
  readonly records?: readonly StepRecord[]
  readonly said: ReadonlyMap<MemberId, Sha256>
  /** for people; undefined: members differ */
  readonly why?: string
}

/** `unknown`: it cannot be derived, or no member holds what was derived. Votes decide then. */
export type TrueState =
  | { readonly type: 'known'; readonly digest: Sha256 }
  | { readonly type: 'pending' }
  | { readonly type: 'unknown' }

/** The state that a version has, whatever members say of it. While it is pending, callers ask again at each tick. */
export function trueState(transition: Transition, doubted: DoubtedState): TrueState {
  const derived = derivedState(transition, doubted)
  if (derived === undefined) return { type: 'pending' }
  if ('why' in derived) return { type: 'unknown' }
  if ([...doubted.said.values()].includes(derived.digest)) return { type: 'known', digest: derived.digest }
  const { v } = doubted.version
  transition.note('audit', `no member holds the state of version ${v} that was derived: votes decide`)
  return { type: 'unknown' }
}

/** What was derived, or why it cannot be; undefined: it is pending. */
export function derivedState(transition: Transition, doubted: DoubtedState): Derived | undefined {
  return transition.state.derivedStates.known.get(doubted.version.id) ?? begin(transition, doubted)
}

/** Who holds the true state of a version and who does not; votes decide where it is unknown. undefined: pending. */
export function judge(transition: Transition, doubted: DoubtedState): Agreement | undefined {
  const truth = trueState(transition, doubted)
  if (truth.type === 'pending') return undefined
  return truth.type === 'known' ? agreementWith(truth.digest, doubted.said) : agreementOf(doubted.said)
}

/** These bytes are the state of the version: the coordinator derived it. */
export function isDerived({ derivedStates: { known } }: RunState, { id }: VersionRef, blob: Sha256): boolean {
  const found = known.get(id)
  return found !== undefined && 'digest' in found && found.digest === blob
}

/** One at a time: undefined while another version's state is derived, too. */
function begin(transition: Transition, doubted: DoubtedState): Derived | undefined {
  const { state, now } = transition
  const { version } = doubted
  if (state.derivedStates.underWay !== undefined) return undefined
  const from = trustedBefore(state, version)
  const steps = stepsTo(state, from, doubted)
  const why = whyNot(from, steps)
  if (steps === undefined || why !== undefined) return remember(transition, version, { why: why ?? '' })
  own(state, 'derivedStates').underWay = { version, since: now }
  const { why: reason = 'members say different states of it' } = doubted
  const text = `the state of version ${version.v} is derived from version ${from.version.v}: ${reason}`
  transition.note('audit', text)
  transition.effect({ type: 'derive-state', version, from, steps, members: inTurn(state, doubted.said) })
  return undefined
}

function whyNot({ version }: Checkpoint, steps: readonly SumStep[] | undefined): string | undefined {
  if (steps === undefined) return `the records since version ${version.v} are not known`
  if (steps.some(({ record }) => record.kind === 'async'))
    return `the parameter server, which keeps no sums, made steps since version ${version.v}`
  if (steps.length > SUMS_KEPT)
    return `the last checkpoint is ${steps.length} steps back, and members keep ${SUMS_KEPT} sums`
  return undefined
}

function stepsTo(state: RunState, from: Checkpoint, { version, records = [] }: DoubtedState): SumStep[] | undefined {
  const committed = stepsAfter(state, from, Math.min(version.v, state.chain.head.v))
  if (committed === undefined) return undefined
  const uncommitted = follow(state.chain.head, version.v > state.chain.head.v ? records : [])
  const steps = [...committed, ...uncommitted]
  return (steps.at(-1)?.version ?? from.version).id === version.id ? steps : undefined
}

/** Committed steps after a checkpoint up to version v; undefined: the chain does not hold them. */
export function stepsAfter(
  { chain }: RunState,
  { version }: Pick<Checkpoint, 'version'>,
  v: number,
): SumStep[] | undefined {
  if (!chain.has(version) || v < version.v || v > chain.head.v) return undefined
  return follow(version, chain.since(version.v, v - version.v))
}

function follow(base: VersionRef, records: readonly StepRecord[]): SumStep[] {
  let last = base
  return records.map((record) => {
    last = extend(last, record)
    return { record, version: last }
  })
}

function trustedBefore(state: RunState, { v }: VersionRef): Checkpoint {
  return state.checkpoints.findLast((one) => one.version.v < v && isTrusted(state, one)) ?? seedCheckpoint(state.config)
}

/** A second member vouched for it, and no member says another state of its version. */
export function isTrusted(state: RunState, checkpoint: Checkpoint): boolean {
  return checkpoint.witnessed && doubtersOf(state, checkpoint).length === 0
}

/** Members that say another state of a checkpoint's version; none whose word was judged already. */
export function doubtersOf(state: RunState, { version, blob }: Checkpoint): MemberId[] {
  if (blob === undefined) return []
  return [...saidOf(state, version)].flatMap(([id, digest]) => (digest === blob ? [] : [id]))
}

/** Who is asked for sums: one of each side in turn, since liars serve none; then members that said nothing. */
function inTurn(state: RunState, said: ReadonlyMap<MemberId, Sha256>): MemberId[] {
  const sides = new Map<Sha256, MemberId[]>()
  for (const [id, digest] of said) sides.set(digest, [...(sides.get(digest) ?? []), id])
  const turns = [...sides.values()].flatMap((ids) => ids.map((id, turn) => ({ id, turn })))
  const ordered = turns.toSorted((a, b) => a.turn - b.turn).map(({ id }) => id)
  return [...new Set([...ordered, ...membersOf(state)])].filter((id) => state.members.has(id))
}

function membersOf({ phase }: RunState): readonly MemberId[] {
  if (phase.type === 'handover') return phase.holders
  return phase.type === 'ring' || phase.type === 'form' ? phase.members : []
}

/** The shell answered; also late, after votes decided. */
function onStateDerived(transition: Transition, answer: Extract<RunInput, { type: 'state-derived' }>): void {
  const slice = own(transition.state, 'derivedStates')
  if (slice.underWay?.version.id === answer.version.id) slice.underWay = undefined
  remember(transition, answer.version, answer.derived)
  transition.enqueue({ type: 'advance' })
}

/** The net below the shell's own limit. */
function derivationTick(transition: Transition): void {
  const slice = own(transition.state, 'derivedStates')
  const { underWay } = slice
  if (underWay === undefined || transition.now - underWay.since <= ANSWER_MS) return
  slice.underWay = undefined
  remember(transition, underWay.version, { why: `it took more than ${ANSWER_MS / 1000} s` })
}

/** No silent fallback: the journal and the events say what was found, or why votes decide. */
function remember(transition: Transition, version: VersionRef, derived: Derived): Derived {
  const { known } = own(transition.state, 'derivedStates')
  known.set(version.id, derived)
  for (const old of known.keys()) if (known.size > REMEMBERED) known.delete(old)
  const entry = { type: 'derived' as const, version, ...derived }
  transition.journal(entry)
  transition.note('audit', derivedText(entry))
  return derived
}

export function derivedText({ version: { v }, ...derived }: { readonly version: VersionRef } & Derived): string {
  if ('digest' in derived) return `the state of version ${v} was derived: ${derived.digest.slice(0, 12)}`
  return `the state of version ${v} is not derived, and votes decide: ${derived.why}`
}
