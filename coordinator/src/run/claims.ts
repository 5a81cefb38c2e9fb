// What members say they hold, against the committed chain (R4), and which of it is the version to go on with (R5).
import {
  blockIndex,
  type Claim,
  epochOf,
  extend,
  fold,
  type MemberId,
  type StepRecord,
  type VersionRef,
} from '@starling-grid/protocol'
import type { RunState } from './state.ts'
import type { Turn } from './turn.ts'

export interface ValidClaim {
  readonly member: MemberId
  readonly version: VersionRef
  /**
   * once committed, cut off by the last rewind, and held by this member: on the chain again when its claim is chosen
   * (R6)
   */
  readonly revived: readonly StepRecord[]
  /** beyond the committed chain and what is revived */
  readonly records: readonly StepRecord[]
  /** generation of the last record: breaks ties */
  readonly lastGen: number
}

export function validClaims(state: RunState, claims: ReadonlyMap<MemberId, Claim | null>): ValidClaim[] {
  return [...claims].flatMap(([member, claim]) => (claim === null ? [] : (validClaim(state, member, claim) ?? [])))
}

/** R4: id(C) stands at position C of the claim's chain; or its base is on the branch that the last rewind cut off. */
export function validClaim(state: RunState, member: MemberId, claim: Claim): ValidClaim | undefined {
  const { chain, config } = state
  const revived = cutOffBefore(state, claim.base)
  const version = fold(claim.base, claim.records)
  const skipped = revived.length > 0 ? 0 : chain.head.v - claim.base.v
  if (version === undefined || skipped < 0 || skipped > claim.records.length) return undefined
  const onChain = revived.length > 0 || fold(claim.base, claim.records.slice(0, skipped))?.id === chain.head.id
  if (!onChain && !config.off.has('R4')) return undefined
  const last = claim.records.at(-1) ?? revived.at(-1) ?? chain.record(version.v)
  const since = claim.records.slice(skipped)
  if (since.some(({ gen }) => gen <= state.forgottenGen)) return undefined
  const again = revived.length > 0 ? 0 : cutOffAmong(state, since)
  return {
    member,
    version,
    revived: [...revived, ...since.slice(0, again)],
    records: since.slice(again),
    lastGen: last?.gen ?? 0,
  }
}

/** How many of these records, which follow the head, the last rewind cut off. */
function cutOffAmong({ chain, abandoned }: RunState, records: readonly StepRecord[]): number {
  let count = 0
  for (let [one, other] = [chain.head, chain.head]; ; count++) {
    const [record, cutOff] = [records[count], abandoned[count]]
    if (record === undefined || cutOff === undefined) return count
    one = extend(one, record)
    other = extend(other, cutOff)
    if (one.id !== other.id) return count
  }
}

/** Records of the abandoned branch that lead from the head to `base`, when the head is still at the fork. */
function cutOffBefore(state: RunState, base: VersionRef): readonly StepRecord[] {
  const fork = state.chain.head
  if (base.v <= fork.v || base.v > fork.v + state.abandoned.length) return []
  const between = state.abandoned.slice(0, base.v - fork.v)
  return fold(fork, between)?.id === base.id ? between : []
}

/**
 * What no honest member says of steps beyond the committed chain: their generation never started (R1, R8), they are
 * none of a ring, or their blocks are counted already, twice, or unknown. Such a claim is a lie, however well its chain
 * is made.
 */
export function implausible(state: RunState, { revived, records }: ValidClaim): string | undefined {
  const seen = new Set(revived.flatMap(({ blocks }) => blocks))
  for (const { v, gen, kind, blocks } of records) {
    if (!mayHaveRun(state, gen) || kind === 'async') return `step ${v} of generation ${gen}, which never ran`
    for (const block of blocks) {
      if (seen.has(block) || state.chain.isDone(block)) return `step ${v} with block ${block}, which is counted already`
      if (block.startsWith('v:') || epochOf(block) >= state.config.epochs || blockIndex(block) >= state.config.blocks)
        return `step ${v} with block ${block}, which does not exist`
      seen.add(block)
    }
  }
  return undefined
}

function mayHaveRun(state: RunState, gen: number): boolean {
  return state.rings.has(gen) || isLost(state, gen)
}

/** Its rows are not in this journal (restored.ts). */
export function isLost({ lostGens }: RunState, gen: number): boolean {
  return lostGens !== undefined && gen >= lostGens.from && gen <= lostGens.to
}

/**
 * R5: the highest valid claim; ties go to the highest generation of the last record, then to what most hold, then to
 * the lowest member id. The members of that generation differ by at most one version; others that hold a record of it
 * prove nothing.
 */
export function highest(turn: Turn, valid: readonly ValidClaim[]): ValidClaim | undefined {
  const holders = (claim: ValidClaim): number => valid.filter(({ version }) => version.id === claim.version.id).length
  const order = [...valid].sort(
    (a, b) =>
      b.version.v - a.version.v || b.lastGen - a.lastGen || holders(b) - holders(a) || (a.member < b.member ? -1 : 1),
  )
  const [first, ...others] = order
  if (first === undefined) return undefined
  const problem = implausible(turn.state, first) ?? outOfRange(turn.state, first, others)
  if (problem === undefined) return first
  turn.note(
    'refusal',
    `${turn.state.members.get(first.member)?.name ?? first.member} claims version ${first.version.v}: ${problem}`,
  )
  turn.refuse(first.member, 'message-unexpected', `a claim of version ${first.version.v}: ${problem}`)
  return highest(turn, others)
}

function outOfRange(state: RunState, first: ValidClaim, others: readonly ValidClaim[]): string | undefined {
  const ring = state.rings.get(first.lastGen) ?? []
  const fellows = others.filter((claim) => ring.includes(claim.member))
  const alone = fellows.length > 0 && fellows.every((claim) => first.version.v - claim.version.v > 1)
  return alone ? 'more than one ahead of its generation' : undefined
}
