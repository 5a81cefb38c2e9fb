// Validation blocks are leased like training blocks, at one version, while training rests there. One member's word of a
// block is not enough: two measure it.
import {
  type BlockId,
  type MemberId,
  isImpossible,
  type Measurements,
  measuredValue,
  type MessageFrom,
  METRICS,
  metricsOf,
  metricText,
  pooled,
  type Tally,
  validationBlock,
  type VersionRef,
} from '@starling-grid/protocol'
import { newestCheckpoint, resultsOf } from '../journal-replay.ts'
import { lease, leaseMs, takeBack } from '../queue/lease-table.ts'
import { currentEpoch, isIdle, trainingIsOver } from '../queue/scheduler.ts'
import { worked } from '../ring/inert.ts'
import { type Lease, own, type RunState, type ValidationResult } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { askForHead } from './checkpoints.ts'
import { ENOUGH_VOICES, MOST_VOICES, verdictOf, type Voice } from './validation-voices.ts'

/** Blocks in one lease: small enough that a departed member's part is soon done by others. */
const BLOCKS_PER_LEASE = 16
/** Rests of a member that others wait for, rather than count without it. */
const RESTS_AWAITED = 2

declare module '../state.ts' {
  interface Slices {
    validation: { now: ValidationRun | undefined }
  }
}

/** Validation of one version: its blocks are leased like training blocks; results are in RunState.validated. */
export interface ValidationRun {
  readonly version: VersionRef
  /** by holder: two members measure one block */
  readonly leases: Map<MemberId, Map<BlockId, Lease>>
  /** blocks that count not yet: who measured what */
  readonly voices: Map<BlockId, readonly Voice[]>
  /** let a lease of this version run out: others are asked first */
  readonly late: Set<MemberId>
  /**
   * how many leases of this version a member let run out: its next one is longer, or a slow member would measure
   * nothing
   */
  readonly missed: Map<MemberId, number>
  /** gave blocks back: how often, and when it is asked again */
  readonly resting: Map<MemberId, { readonly times: number; readonly until: number }>
}

export const validation = {
  initial: () => ({ validation: { now: undefined } }),
  hear: { validated: onValidated, 'gave-back': onGaveBack },
  holds: validate,
  plan: { window: windowOf },
  memberLost: ({ state }, { id }) => void own(state, 'validation').now?.leases.delete(id),
  frozen: ({ state }) => own(state, 'validation').now?.leases.clear(),
} satisfies Aspect

/** Training rests at the version that is validated. */
function validate(transition: Transition): string | undefined {
  const { state } = transition
  const { phase } = state
  if (!isIdle(state)) return drainingReason(state)
  concludeValidation(transition)
  if (!validationDue(state)) return undefined
  if (phase.type !== 'ring') return grantValidation(transition, [...state.members.keys()])
  askForHead(transition)
  // Members of the ring have the version at hand; others get it from its checkpoint.
  const isSaved = newestCheckpoint(state).version.id === state.chain.head.id
  return grantValidation(transition, phase.members, isSaved ? [...state.members.keys()] : [])
}

/** In async mode no lease is granted until those that are out came back; a ring plans no step beyond. */
function drainingReason(state: RunState): string | undefined {
  if (state.phase.type !== 'async' || !validationDue(state)) return undefined
  return `parameter server: ${state.leases.size} leased blocks come back before the version is validated`
}

/** A multiple of `everySteps` was reached since the last evaluation. */
function isPastMark({ chain, evaluations }: RunState, everySteps: number): boolean {
  const last = evaluations.at(-1)?.version.v ?? 0
  return Math.floor(chain.head.v / everySteps) > Math.floor(last / everySteps)
}

/** The ring rests at the next multiple of `everySteps`. */
function windowOf({ config, chain }: RunState, window: number): number {
  const { everySteps } = config.evaluate
  return everySteps === undefined ? window : Math.min(window, everySteps - (chain.head.v % everySteps))
}

/** After every so many steps, or at every n-th epoch's end, and always at the end of the run. */
export function validationDue(state: RunState): boolean {
  const { config, chain } = state
  if (validationBlocks(state) === 0 || chain.head.v === 0) return false
  if (resultsOf(state, chain.head.id).size >= validationBlocks(state)) return false
  if (trainingIsOver(state)) return true
  const { everySteps, everyEpochs = 1 } = config.evaluate
  if (everySteps !== undefined) return isPastMark(state, everySteps)
  const last = chain.records.at(-1)?.blocks[0]
  const ended = last !== undefined && currentEpoch(state) > Number(last.slice(0, last.indexOf(':')))
  return ended && currentEpoch(state) % everyEpochs === 0
}

/** Without those that are set aside. */
export function validationBlocks({ config, quarantined }: RunState): number {
  let aside = 0
  for (const block of quarantined) if (block.startsWith('v:')) aside++
  return config.validationBlocks - aside
}

/**
 * Grants what is left to these members, round and round, and renews what is overdue; to others, too, where fewer than
 * two of these answer. Each block goes to two members, and to a third where those differ.
 */
function grantValidation(transition: Transition, first: readonly MemberId[], others: readonly MemberId[] = []): string {
  const { state } = transition
  const run = validationRun(transition)
  dropOverdue(transition, run)
  const validators = validatorsOf(transition, run, { first, others })
  const { able } = validators
  settleBlocks(transition, run, validators)
  const measuring = measurersOf(run)
  const open = openBlocks(state, run, measuring)
  for (const member of open.length === 0 ? [] : able) {
    if (run.leases.has(member)) continue
    const times = (block: BlockId): number => measuring.get(block)?.length ?? 0
    const blocks = open
      .filter((block) => mayMeasure(state, run, block, { member, able, measuring }))
      .sort((a, b) => times(a) - times(b)) // those that fewer measure first
      .slice(0, BLOCKS_PER_LEASE)
    if (blocks.length === 0) continue
    const leases = new Map<BlockId, Lease>()
    const ms = leaseMs(state, member, run.missed.get(member))
    const granted = lease(transition, leases, { holder: member, blocks, ms })
    run.leases.set(member, leases)
    for (const block of blocks) measuring.set(block, [...(measuring.get(block) ?? []), member])
    transition.send(member, { type: 'validate', version: run.version, leases: granted })
  }
  const done = resultsOf(state, run.version.id).size
  return `validating version ${run.version.v}: ${done} of ${validationBlocks(state)} blocks`
}

function validationRun({ state }: Transition): ValidationRun {
  const version = state.chain.head
  const validation = own(state, 'validation')
  if (validation.now?.version.id === version.id) return validation.now
  validation.now = {
    version,
    leases: new Map(),
    voices: new Map(),
    late: new Set(),
    missed: new Map(),
    resting: new Map(),
  }
  return validation.now
}

function dropOverdue({ now }: Transition, { leases, late, missed }: ValidationRun): void {
  for (const [member, own] of leases) {
    const overdue = [...own].filter(([, { deadline }]) => deadline < now)
    for (const [block] of overdue) own.delete(block)
    if (own.size === 0) leases.delete(member)
    if (overdue.length === 0) continue
    late.add(member)
    missed.set(member, (missed.get(member) ?? 0) + 1)
  }
}

interface Validators {
  /** may be asked now */
  readonly able: readonly MemberId[]
  /** gave blocks back, and are asked again in a moment */
  readonly soon: readonly MemberId[]
}

/** When all were late, all are in turn again. */
function validatorsOf(
  { state, now }: Transition,
  { late, resting }: ValidationRun,
  { first, others }: { readonly first: readonly MemberId[]; readonly others: readonly MemberId[] },
): Validators {
  const hasSay = (id: MemberId): boolean => (state.members.get(id)?.noSayUntil ?? 0) <= now
  const rests = (id: MemberId): boolean => (resting.get(id)?.until ?? 0) > now
  const answers = (id: MemberId): boolean => !late.has(id) && !rests(id)
  const enough = first.filter((id) => hasSay(id) && answers(id)).length >= ENOUGH_VOICES
  const all = enough ? [...first] : [...new Set([...first, ...others])]
  const heard = all.some(hasSay) ? all.filter(hasSay) : all
  if (heard.every((id) => late.has(id))) late.clear()
  const soon = heard.filter((id) => !late.has(id) && rests(id) && (resting.get(id)?.times ?? 0) <= RESTS_AWAITED)
  return { able: heard.filter(answers), soon }
}

type Measurers = ReadonlyMap<BlockId, readonly MemberId[]>

/** Who measured a block that does not count yet, or holds its lease. */
function measurersOf({ voices, leases }: ValidationRun): Map<BlockId, readonly MemberId[]> {
  const measurers = new Map<BlockId, readonly MemberId[]>()
  const add = (block: BlockId, member: MemberId): void =>
    void measurers.set(block, [...(measurers.get(block) ?? []), member])
  for (const [block, said] of voices) for (const { member } of said) add(block, member)
  for (const [member, own] of leases) for (const block of own.keys()) add(block, member)
  return measurers
}

/** Blocks without a result that further members are to measure. */
function openBlocks(state: RunState, run: ValidationRun, measuring: Measurers): BlockId[] {
  const results = resultsOf(state, run.version.id)
  return Array.from({ length: state.config.validationBlocks }, (_, i) => validationBlock(i)).filter(
    (block) => !results.has(block) && !state.quarantined.has(block) && isWanted(run, block, measuring),
  )
}

function isWanted({ voices }: ValidationRun, block: BlockId, measuring: Measurers): boolean {
  const wanted = (voices.get(block)?.length ?? 0) < ENOUGH_VOICES ? ENOUGH_VOICES : MOST_VOICES
  return (measuring.get(block)?.length ?? 0) < wanted
}

interface Asking {
  readonly member: MemberId
  /** all that may be asked */
  readonly able: readonly MemberId[]
  readonly measuring: Measurers
}

/** Once each; a second voice comes from another network where a member of one is there. */
function mayMeasure(
  { members }: RunState,
  run: ValidationRun,
  block: BlockId,
  { member, able, measuring }: Asking,
): boolean {
  const measurers = measuring.get(block) ?? []
  if (!isWanted(run, block, measuring) || measurers.includes(member)) return false
  const networkOf = (id: MemberId): string | undefined => members.get(id)?.network
  const said = (run.voices.get(block) ?? []).map(({ network }) => network)
  const taken = new Set([...measurers.map(networkOf), ...said])
  return !taken.has(networkOf(member)) || able.every((id) => taken.has(networkOf(id)))
}

/** What two members agree on counts; what no further member can be asked about counts unconfirmed. */
function settleBlocks(transition: Transition, run: ValidationRun, { able, soon }: Validators): void {
  const { state } = transition
  const networksHere = able.map((id) => state.members.get(id)?.network)
  const before = resultsOf(state, run.version.id).size
  for (const [block, voices] of run.voices) {
    const isMeasured = (id: MemberId): boolean => voices.some(({ member }) => member === id)
    const others =
      [...able, ...soon].some((id) => !isMeasured(id)) || [...run.leases.values()].some((own) => own.has(block))
    const networks = new Set([...networksHere, ...voices.map(({ network }) => network)]).size > 1
    const verdict = verdictOf(voices, { others, networks })
    if (verdict === undefined) continue
    run.voices.delete(block)
    for (const own of run.leases.values()) own.delete(block)
    transition.journal({
      type: 'validated',
      version: run.version,
      block,
      ...verdict.measured,
      confirmed: verdict.confirmed,
    })
    for (const member of verdict.few) onOutvoted(transition, run, member, block)
  }
  if (resultsOf(state, run.version.id).size > before) concludeValidation(transition)
}

/** All blocks of the head are validated: what its evaluation says may end the run. */
function concludeValidation(transition: Transition): void {
  const { state } = transition
  const { head } = state.chain
  const { size } = resultsOf(state, head.id)
  if (size === 0 || size < validationBlocks(state) || state.evaluations.at(-1)?.version.id === head.id) return
  const { samples: _, confirmed, ...measured } = summary(state, head.id)
  transition.journal({ type: 'evaluated', version: head, ...measured, confirmed })
  const doubt = confirmed ? '' : ', unconfirmed: no second member measured the same'
  const judged = confirmed || !isJudged(state) ? '' : '; it does not count for the end of the run'
  transition.note('validation', `version ${head.v}: ${evaluationText(state, measured)}${doubt}${judged}`)
  transition.enqueue({ type: 'advance' })
}

function isJudged({ config }: RunState): boolean {
  return config.stop.target !== undefined || config.stop.patience !== undefined
}

/** The run's metric, or the accuracy. */
function evaluationText({ config }: RunState, measured: Measurements): string {
  const { metric = 'accuracy' } = config.stop
  const value = measuredValue(measured, metric)
  const { name } = METRICS[metric]
  return Number.isFinite(value) ? metricText(name, value) : `no ${name} is defined`
}

/** Times excludeMs that a member which is outvoted again and again measures nothing. */
const LONGEST_SILENCE = 16

/** Two members contradict it: it is named and measures nothing for a while, longer each time. It stays in the ring. */
function onOutvoted(transition: Transition, run: ValidationRun, id: MemberId, block: BlockId): void {
  const { state, now } = transition
  const member = state.members.get(id)
  if (member === undefined || member.noSayUntil > now) return
  const ms = state.config.timing.excludeMs * Math.min(LONGEST_SILENCE, 2 ** member.outvoted)
  member.outvoted++
  member.noSayUntil = now + ms
  run.leases.delete(id)
  transition.refuse(id, 'digest-mismatch', `two other members measured validation block ${block} otherwise`)
  transition.note(
    'refusal',
    `${member.name} measured validation block ${block} otherwise than two others: ` +
      `it validates nothing for ${ms / 1000} s`,
  )
}

function onValidated(transition: Transition, member: MemberId, message: MessageFrom<'validated'>): void {
  const { state } = transition
  const { version, lease: token } = message
  const { now } = own(state, 'validation')
  const run = now?.version.id === version.id ? now : undefined
  const leases = run?.leases.get(member)
  if (run === undefined || leases?.get(token.block)?.leaseEpoch !== token.leaseEpoch)
    return transition.refuse(member, 'lease-stale', `validation block ${token.block} is not yours`)
  const measured = measuredIn(message)
  if (typeof measured === 'string') return transition.refuse(member, 'message-malformed', measured)
  leases.delete(token.block)
  if (leases.size === 0) run.leases.delete(member)
  run.late.delete(member)
  worked(state, member, transition.now)
  if (state.phase.type === 'ring') state.phase.progressAt = transition.now
  const { network } = state.members.get(member) ?? {}
  const voice = { member, network, measured }
  run.voices.set(token.block, [...(run.voices.get(token.block) ?? []), voice])
  transition.enqueue({ type: 'advance' })
}

/** Or why no member can have measured it. */
function measuredIn({
  samples,
  targets,
  correct,
  lossSum,
  tally,
}: MessageFrom<'validated'>): Voice['measured'] | string {
  if (correct > targets) return `${correct} of ${targets} targets right`
  const measured = { samples, targets, correct, lossSum }
  if (tally === undefined) return measured
  return isImpossible(tally, measured) ? `sums of ${tally.of} that no ${targets} targets have` : { ...measured, tally }
}

/** ms before a member that gave blocks back is asked again: at first, and at most; twice as long each time */
const REST_MS = 1000
const LONGEST_REST_MS = 60_000

function onGaveBack(transition: Transition, id: MemberId, { leases, message }: MessageFrom<'gave-back'>): void {
  const { now: run } = own(transition.state, 'validation')
  const held = run?.leases.get(id)
  if (run === undefined || held === undefined) return
  const count = leases.filter((token) => takeBack(held, id, token)).length
  if (held.size === 0) run.leases.delete(id)
  if (count === 0) return
  rest(transition, run, id)
  transition.note('member', `${transition.state.members.get(id)?.name ?? id} gave ${count} blocks back: ${message}`)
  transition.enqueue({ type: 'advance' })
}

/** The block is set aside: it is measured no more. */
export function withdraw(state: RunState, block: BlockId): void {
  const { now } = own(state, 'validation')
  for (const leases of now?.leases.values() ?? []) leases.delete(block)
  now?.voices.delete(block)
}

/** A mode epoch ended: what is not finished begins anew. */
export function beginAnew(state: RunState): void {
  own(state, 'validation').now = undefined
}

/** What it needs for them could not be had there: others are asked, and it rests. */
function rest({ now }: Transition, { resting }: ValidationRun, member: MemberId): void {
  const times = (resting.get(member)?.times ?? 0) + 1
  resting.set(member, { times, until: now + Math.min(LONGEST_REST_MS, REST_MS * 2 ** (times - 1)) })
}

export interface ValidationSummary extends Measurements {
  readonly samples: number
  readonly confirmed: boolean
}

/** Accuracy, mean loss and metrics of a version over the targets of the blocks that were validated. */
export function summary(state: RunState, id: string): ValidationSummary {
  const sums = { samples: 0, targets: 0, correct: 0, lossSum: 0 }
  const results = [...resultsOf(state, id).values()]
  for (const result of results) {
    sums.samples += result.samples
    sums.targets += result.targets
    sums.correct += result.correct
    sums.lossSum += result.lossSum
  }
  const tally = tallyOfAll(results)
  return {
    samples: sums.samples,
    accuracy: sums.correct / Math.max(1, sums.targets),
    loss: sums.lossSum / Math.max(1, sums.targets),
    ...(tally === undefined ? {} : { metrics: metricsOf(tally, sums) }),
    confirmed: results.every(({ confirmed }) => confirmed),
  }
}

function tallyOfAll([first, ...others]: readonly ValidationResult[]): Tally | undefined {
  let all = first?.tally
  for (const { tally } of others) all = all === undefined || tally === undefined ? undefined : pooled(all, tally)
  return all
}
