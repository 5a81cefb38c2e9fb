// The durable state of a run as one journal row: what applyEntry wrote until then, and nothing else. A restart reads
// the newest snapshot and the rows behind it, and gets the state that all rows would have made.
import { describeError, GridError, parse } from '@starling-grid/protocol'
import type { Checkpoint, Recorded, Recording } from '../recorded.ts'
import { SNAPSHOT_FORM, type WrittenRun, WrittenRunSchema } from './written-run.ts'

/** For the next journal row; assignments nothing with the state. */
export function writtenRun(state: Recording): WrittenRun {
  const { fence, generation, mode, modeEpoch, modeReason, leasesReserved, restorations } = state
  const written = {
    form: SNAPSHOT_FORM,
    fence,
    generation,
    chain: state.chain.written(),
    ...(state.appended.length > 0 ? { appended: state.appended } : {}),
    checkpoints: state.checkpoints,
    ...(state.kept.length > 0 ? { kept: state.kept } : {}),
    ...(state.released.length > 0 ? { released: state.released } : {}),
    mode,
    modeEpoch,
    modeReason,
    leasesReserved,
    quarantined: [...state.quarantined],
    restorations,
    validated: [...state.validated].map(([id, results]) => ({ id, results: [...results] })),
    ...(state.evaluations.length > 0 ? { evaluations: state.evaluations } : {}),
    ...(state.trainedMs > 0 ? { trainedMs: state.trainedMs } : {}),
    epochs: state.config.epochs,
    finished: state.finished ?? null,
    ...(state.paused ? { paused: true } : {}),
    abandoned: state.abandoned,
    lostGenerations: state.lostGenerations ?? null,
    forgottenGeneration: state.forgottenGeneration,
    rings: [...state.rings].map(([ring, members]) => ({ generation: ring, members })),
  }
  return JSON.parse(JSON.stringify(written)) as WrittenRun
}

/**
 * The state becomes what was written, whatever it was.
 * @throws GridError 'journal-damaged' when that is no snapshot of this form, or contradicts itself
 */
export function readRun(state: Recorded, value: unknown): void {
  const written = checked(value)
  state.appended = written.appended ?? []
  for (const { epoch, blocks } of state.appended) state.chain.grow(epoch, blocks)
  try {
    state.chain.read(written.chain)
  } catch (cause) {
    throw new GridError('journal-damaged', `a snapshot: ${describeError(cause)}; restore the journal from a backup`, {
      cause,
    })
  }
  const { fence, generation, mode, modeEpoch, modeReason, leasesReserved, restorations } = written
  const { abandoned, forgottenGeneration, epochs, finished, lostGenerations } = written
  Object.assign(state, {
    forgottenGeneration,
    fence,
    generation,
    mode,
    modeEpoch,
    modeReason,
    leasesReserved,
    restorations,
    abandoned,
  })
  state.config = { ...state.config, epochs }
  state.finished = finished ?? undefined
  state.paused = written.paused ?? false
  state.kept = (written.kept ?? []).map(checkpointOf)
  state.released = (written.released ?? []).map(checkpointOf)
  state.evaluations = written.evaluations ?? []
  state.trainedMs = written.trainedMs ?? 0
  state.lostGenerations = lostGenerations ?? undefined
  state.checkpoints.splice(0, state.checkpoints.length, ...written.checkpoints.map(checkpointOf))
  refill(state.quarantined, written.quarantined)
  replaceAll(
    state.validated,
    written.validated.map(({ id, results }) => [id, new Map(results)]),
  )
  replaceAll(
    state.rings,
    written.rings.map((ring) => [ring.generation, ring.members]),
  )
}

function checked(value: unknown): WrittenRun {
  const form = typeof value === 'object' && value !== null && 'form' in value ? value.form : undefined
  if (typeof form === 'number' && form !== SNAPSHOT_FORM)
    throw new GridError(
      'journal-damaged',
      `expected a snapshot of form ${SNAPSHOT_FORM}, got form ${form}; start the version of this program that wrote it`,
    )
  return parse(WrittenRunSchema, value, 'a snapshot in the journal', 'journal-damaged')
}

function checkpointOf({ version, blob, ...rest }: WrittenRun['checkpoints'][number]): Checkpoint {
  return { version, blob, ...rest }
}

function refill<T>(set: Set<T>, values: readonly T[]): void {
  set.clear()
  for (const value of values) set.add(value)
}

function replaceAll<K, V>(map: Map<K, V>, entries: readonly (readonly [K, V])[]): void {
  map.clear()
  for (const [key, value] of entries) map.set(key, value)
}
