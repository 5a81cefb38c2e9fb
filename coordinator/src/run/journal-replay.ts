// Durable state of a run from its journal: one function applies an entry, live and on replay alike, so that both agree.
import { type BlockId, PLAN_WINDOW, type StepRecord, type VersionRef } from '@starling-grid/protocol'
import { withEvaluation } from './history/ending.ts'
import { keptOf, lastOf } from './history/keep.ts'
import { MOST_RELEASED, RINGS_KEPT, VALIDATED_KEPT } from './history/kept.ts'
import { readRun } from './history/snapshot.ts'
import type { Checkpoint, JournalEntry, Recorded, Recording, RunConfig, ValidationResult } from './recorded.ts'

/** Checkpoints that are remembered: as many again as are kept, so that the bytes of the older ones can be deleted. */
function rememberedOf({ config }: Recording): number {
  return 2 * lastOf(config.keep)
}

/** Version 0: the checkpoint that is always there. */
export function seedCheckpoint(config: RunConfig): Checkpoint {
  return { version: config.genesis, blob: undefined, bytes: 0, witnessed: true, agreeing: 0, members: 0, at: 0 }
}

export function newestCheckpoint(state: Recording): Checkpoint {
  return state.checkpoints.at(-1) ?? seedCheckpoint(state.config)
}

/**
 * The durable part of a state changes here and nowhere else.
 * @throws GridError 'journal-damaged' for a snapshot that cannot be read
 */
// oxlint-disable-next-line max-lines-per-function -- a flat switch over the entries of a journal
export function applyEntry(recording: Recording, entry: JournalEntry, at: number): void {
  const state = recorded(recording)
  switch (entry.type) {
    case 'fence':
      state.fence = entry.fence
      return
    case 'ballot':
      state.generation = entry.generation
      if (entry.after !== undefined) state.lostGenerations = { from: entry.after + 1, to: entry.generation - 1 }
      return
    case 'start':
      return start(state, entry)
    case 'commit':
      commit(state, entry.records)
      return
    case 'checkpoint':
      return checkpoint(state, entry, at)
    case 'rewind':
      return rewind(state, entry)
    case 'mode':
      state.mode = entry.mode
      state.modeEpoch = entry.modeEpoch
      state.modeReason = entry.reason
      return
    case 'lease':
      state.leasesReserved = entry.reserved
      return
    case 'quarantine':
      state.quarantined.add(entry.block)
      return
    case 'restored':
      for (const block of entry.blocks) state.quarantined.delete(block)
      state.restorations++
      return
    case 'checkpoint-damaged':
      forgetCheckpoint(state, entry.version)
      return
    case 'derived': // for people: a restart derives it again
      return
    case 'validated':
      return addResult(state, entry)
    case 'evaluated':
      return addEvaluation(state, entry)
    case 'appended':
      return append(state, entry)
    case 'trained':
      state.trainedMs = entry.ms
      return
    case 'epochs':
      state.config = { ...state.config, epochs: entry.epochs }
      return
    case 'paused':
      state.paused = entry.paused
      return
    case 'finished':
      state.finished = entry.reason
      return
    case 'snapshot':
      return readRun(state, entry.run)
    default:
      entry satisfies never
  }
}

/** The one place that may write it. */
function recorded(recording: Recording): Recorded {
  return recording as Recorded
}

/** Of a run that is over, durably: nothing goes back any more. The last record says which epoch it ended in. */
export function forgetChain(recording: Recording): void {
  const { chain } = recorded(recording)
  chain.forgetBefore(chain.head.v - 1)
}

/** Of a state that was kept for what people are shown of it: only its totals stay. */
export function forgetPast(recording: Recording): void {
  const { chain, validated } = recorded(recording)
  chain.forgetBefore(chain.head.v)
  validated.clear()
}

/** Claims of their steps are believed no more (R4). */
function forgetGenerations(state: Recorded, upTo: number): void {
  state.rings.clear()
  state.lostGenerations = undefined
  state.forgottenGeneration = upTo
}

function start(state: Recorded, { generation, members, records }: Extract<JournalEntry, { type: 'start' }>): void {
  state.rings.set(generation, members)
  for (const old of state.rings.keys()) if (state.rings.size > RINGS_KEPT) state.rings.delete(old)
  commit(state, records)
}

/** A rewind goes to one of those that stay, or to version 0: records before them are asked for by nothing. */
function checkpoint(
  state: Recorded,
  { version, blob, bytes, witnessed, agreeing, members, remembered }: Extract<JournalEntry, { type: 'checkpoint' }>,
  at: number,
): void {
  const { checkpoints, chain } = state
  const memory = remembered === undefined ? {} : { remembered }
  checkpoints.push({ version, blob, bytes, witnessed, agreeing, members, ...memory, at })
  const own = checkpoints.filter((one) => one.blob !== undefined)
  const max = rememberedOf(state)
  for (const old of own.slice(0, -max)) checkpoints.splice(checkpoints.indexOf(old), 1)
  const [oldest] = own.slice(-max)
  if (oldest !== undefined) chain.forgetBefore(Math.min(oldest.version.v, chain.head.v - PLAN_WINDOW))
  keep(state, withBytes(state))
}

/** Checkpoints whose bytes are there, the oldest first: the newest ones, and those that the job keeps beside them. */
export function withBytes({ checkpoints, kept, config }: Recording): Checkpoint[] {
  const newest = checkpoints.filter((one) => one.blob !== undefined).slice(-lastOf(config.keep))
  const older = kept.filter(({ version }) => !newest.some((one) => one.version.id === version.id))
  return [...older, ...newest].sort((a, b) => a.version.v - b.version.v)
}

/** Those of `there` that the rules of the job keep stay; what they kept before and keep no longer is released. */
function keep(state: Recorded, there: readonly Checkpoint[]): void {
  const { config, evaluations } = state
  const kept = keptOf(there, { keep: config.keep, metric: config.stop.metric, evaluations })
  const stays = new Set(kept.map(({ version }) => version.id))
  const gone = state.kept.filter(({ version }) => !stays.has(version.id))
  state.kept = kept
  if (gone.length > 0) state.released = [...state.released, ...gone].slice(-MOST_RELEASED)
}

function rewind(state: Recorded, { to, final, generation = 0 }: Extract<JournalEntry, { type: 'rewind' }>): void {
  const gone = state.chain.truncate(to)
  state.abandoned = final ? [] : gone
  if (final) forgetGenerations(state, generation)
  while (newestCheckpoint(state).version.v > to.v) state.checkpoints.pop()
  state.evaluations = state.evaluations.filter(({ version }) => version.v <= to.v)
  keep(
    state,
    withBytes(state).filter(({ version }) => version.v <= to.v),
  )
}

function append(state: Recorded, { epoch, blocks, before, shards }: Extract<JournalEntry, { type: 'appended' }>): void {
  state.appended = [...state.appended, { epoch, blocks, before, shards }]
  state.chain.grow(epoch, blocks)
}

function commit(state: Recorded, records: readonly StepRecord[]): void {
  if (records.length > 0) state.abandoned = []
  state.chain.append(records)
}

/** Version 0 has no bytes of its own, and is always there. */
function forgetCheckpoint(state: Recorded, { id }: VersionRef): void {
  const { checkpoints } = state
  state.kept = state.kept.filter(({ version }) => version.id !== id)
  const at = checkpoints.findIndex(({ version, blob }) => version.id === id && blob !== undefined)
  if (at >= 0) checkpoints.splice(at, 1)
}

function addEvaluation(
  state: Recorded,
  { version, confirmed, loss, accuracy, metrics }: Extract<JournalEntry, { type: 'evaluated' }>,
): void {
  const newest = { version, confirmed, loss, accuracy, ...(metrics === undefined ? {} : { metrics }) }
  const { stop, keep: rule } = state.config
  state.evaluations = withEvaluation(state.evaluations, newest, stop.metric, Math.max(1, rule.best ?? 0))
  keep(state, withBytes(state))
}

const NO_RESULTS: ReadonlyMap<BlockId, ValidationResult> = new Map()

export function resultsOf(state: Recording, id: string): ReadonlyMap<BlockId, ValidationResult> {
  return state.validated.get(id) ?? NO_RESULTS
}

function addResult(
  state: Recorded,
  {
    version,
    block,
    samples,
    targets,
    correct,
    lossSum,
    tally,
    confirmed,
  }: Extract<JournalEntry, { type: 'validated' }>,
): void {
  const results = state.validated.get(version.id) ?? new Map<BlockId, ValidationResult>()
  const sums = { samples, targets, correct, lossSum, ...(tally === undefined ? {} : { tally }) }
  results.set(block, { ...sums, confirmed: confirmed ?? false })
  state.validated.set(version.id, results)
  for (const old of state.validated.keys()) if (state.validated.size > VALIDATED_KEPT) state.validated.delete(old)
}
