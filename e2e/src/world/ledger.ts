// What each version must hold, by construction from its records: which blocks, and which parameters. Steps of a ring
// add up exactly what their record names. What a parameter server or a local round makes is the same for all who hold
// it.
import { decodeVersionState, initialVersionState } from '@starling-grid/model'
import { blockIndex, type StepRecord, type VersionRef } from '@starling-grid/protocol'
import { History } from './history.ts'
import { genesisOf, type GridJob } from './job.ts'
import type { Violations } from './violations.ts'

/** Of a parameter: f32 rounds each of some twenty additions. */
const TOLERANCE = 1e-3

export class Ledger extends History {
  readonly job: GridJob
  readonly #violations: Violations
  /** version id → its parameters; of other kinds than ring as they were first seen */
  readonly #parameters = new Map<string, Float32Array>()

  constructor(job: GridJob, violations: Violations) {
    const first = genesisOf(job)
    super(first, { blocks: job.blocks, epochs: job.spec.epochs }, violations)
    this.job = job
    this.#violations = violations
    this.#parameters.set(first.id, initialVersionState(job.form.spec, job.form.optimizer, job.spec.seed).parameters)
  }

  override record(parent: VersionRef, record: StepRecord, version: VersionRef): void {
    super.record(parent, record, version)
    const before = this.#parameters.get(parent.id)
    if (before === undefined || record.kind !== 'ring' || this.#parameters.has(version.id)) return
    const parameters = before.slice()
    const sum = countsOf(record, parameters.length)
    for (const [i, count] of sum.entries())
      parameters[i] = (parameters[i] ?? 0) - (this.job.lr * count) / Math.max(1, record.targets)
    this.#parameters.set(version.id, parameters)
  }

  parametersOf({ id }: VersionRef): Float32Array | undefined {
    return this.#parameters.get(id)
  }

  /** I1, I4: the sum that makes a step of a ring holds each block of its record once, and nothing else. */
  checkSum(who: string, record: StepRecord, sum: Float32Array): void {
    if (record.kind !== 'ring') return
    const expected = countsOf(record, sum.length)
    if (sum.some((value, i) => value !== expected[i]))
      this.#violations.report(
        'I4',
        `${who} applies ${[...sum].join(' ')} for version ${record.v}, whose record names ${record.blocks.join(' ')}`,
      )
  }

  /** I6: the bytes are those of the version that they are named after. */
  checkState(who: string, bytes: Uint8Array, version: VersionRef): void {
    const { parameters } = decodeVersionState(bytes, { ...this.job.form, version })
    if (!this.holds(version, parameters))
      this.#violations.report('I6', `${who} holds other parameters than those of version ${version.v}`)
  }

  holds(version: VersionRef, parameters: Float32Array): boolean {
    const expected = this.#parameters.get(version.id)
    if (expected === undefined) this.#parameters.set(version.id, parameters.slice())
    return expected?.every((value, i) => Math.abs(value - (parameters[i] ?? Number.NaN)) < TOLERANCE) ?? true
  }
}

function countsOf({ blocks }: StepRecord, length: number): Float32Array {
  const counts = new Float32Array(length)
  for (const block of blocks) counts[blockIndex(block)] = (counts[blockIndex(block)] ?? 0) + 1
  return counts
}
