// What each version must hold, by construction from its records: which blocks, and which parameters. Steps of a ring
// add up exactly what their record names. What a parameter server or a local round makes is the same for all who hold
// it.
import { decodeVersionState, initialVersionState } from '@starling-grid/model'
import { blockIndex, digest, type Sha256, type StepRecord, type VersionRef } from '@starling-grid/protocol'
import { History } from './history.ts'
import { genesisOf, type WorldJob } from './job.ts'
import type { Violations } from './violations.ts'
import type { Watching } from './watched-run.ts'

/** Of a parameter: f32 rounds each of some twenty additions. */
const TOLERANCE = 1e-3
/** Of a sum in f16 or int8: less than a block makes. */
const ENCODED_TOLERANCE = 0.3
/** What a block of an off-ring member counts at least (A1): late by fewer versions than a run has. */
const LEAST_DAMPED = 0.01

/** How far parameters have moved since version 0, at least and at most. */
interface Moves {
  readonly least: Float64Array
  readonly most: Float64Array
}

export class Ledger extends History {
  readonly job: WorldJob
  readonly #violations: Violations
  /** version 0 */
  readonly #first: Float32Array
  /** off-ring members took part, whose late blocks count less */
  isDamped: boolean
  /** version id → its parameters; of other kinds than ring as they were first seen */
  readonly #parameters = new Map<string, Float32Array>()
  /** of groups: version id → SHA-256 of what rounds begin from, first from the coordinator */
  readonly #bases = new Map<string, Sha256>()
  /** of groups: version id → how far each parameter has moved */
  readonly #moves = new Map<string, Moves>()

  constructor(job: WorldJob, { violations, scenario }: Watching) {
    const first = genesisOf(job)
    super(first, { blocks: job.mostBlocks, epochs: job.epochs }, violations)
    this.isDamped = isOffRing(scenario)
    this.job = job
    this.#violations = violations
    this.#first = initialVersionState(job.form.spec, job.form.optimizer, job.spec.seed, job.form.outer).parameters
    this.#parameters.set(first.id, this.#first)
    const still = (): Float64Array => new Float64Array(this.#first.length)
    this.#moves.set(first.id, { least: still(), most: still() })
  }

  override record(parent: VersionRef, record: StepRecord, version: VersionRef): void {
    super.record(parent, record, version)
    this.#move(parent, record, version)
    const before = this.#parameters.get(parent.id)
    if (before === undefined || !this.#isExact(record) || this.#parameters.has(version.id)) return
    const parameters = before.slice()
    const sum = countsOf(record, parameters.length)
    const lr = record.scaling?.lr ?? this.job.lr
    for (const [i, count] of sum.entries())
      parameters[i] = (parameters[i] ?? 0) - (lr * count) / Math.max(1, record.targets)
    this.#parameters.set(version.id, parameters)
  }

  /**
   * A contribution of n blocks moves the parameter of each by n of the version's samples: by one of them at least, and
   * by all at most.
   */
  #move(parent: VersionRef, { blocks, samples }: StepRecord, version: VersionRef): void {
    const before = this.#moves.get(parent.id)
    if (before === undefined) return
    const after: Moves = { least: before.least.slice(), most: before.most.slice() }
    for (const block of blocks) {
      const index = blockIndex(block)
      after.least[index] = (after.least[index] ?? 0) + 1 / samples
      after.most[index] = (after.most[index] ?? 0) + 1
    }
    this.#moves.set(version.id, after)
  }

  /** G1: every block of the records is in the parameters, once, and no other. */
  #hasMoved(version: VersionRef, parameters: Float32Array): boolean {
    const moves = this.#moves.get(version.id)
    const first = this.#first
    if (moves === undefined || this.job.spec.groups === undefined) return true
    return parameters.every((value, i) => {
      const by = (first[i] ?? 0) - value
      return by > (moves.least[i] ?? 0) - TOLERANCE && by < (moves.most[i] ?? 0) + TOLERANCE
    })
  }

  parametersOf({ id }: VersionRef): Float32Array | undefined {
    return this.#parameters.get(id)
  }

  /** I1, I4: the sum that makes a step of a ring holds each block of its record once, and nothing else. */
  checkSum(who: string, record: StepRecord, sum: Float32Array): void {
    const isRight = record.kind === 'round' ? this.#isOfRound(record, sum) : this.#isOfRing(record, sum)
    if (isRight) return
    this.#violations.report(
      'I4',
      `${who} applies ${[...sum].join(' ')} for version ${record.v}, whose record names ${record.blocks.join(' ')}`,
    )
  }

  #isExact({ kind }: StepRecord): boolean {
    return kind === 'ring' && this.#tolerance === 0 && !this.isDamped
  }

  /** of a sum: what encodings keep back for the next step */
  get #tolerance(): number {
    return (this.job.spec.encoding ?? 'f32') === 'f32' ? 0 : ENCODED_TOLERANCE
  }

  #isOfRing(record: StepRecord, sum: Float32Array): boolean {
    if (record.kind !== 'ring') return true
    const expected = countsOf(record, sum.length)
    return sum.every((value, i) => {
      const most = (expected[i] ?? 0) + this.#tolerance
      const least = (expected[i] ?? 0) * (this.isDamped ? LEAST_DAMPED : 1) - this.#tolerance
      return value <= most && value >= least
    })
  }

  /**
   * A member with n blocks puts n into the round for each of them, since each is an inner step of its own. So as many
   * blocks as a multiple of n have the value n, unless a block is in the round twice (A7). Fragments leave before all
   * is learned, and say less.
   */
  #isOfRound({ blocks }: StepRecord, sum: Float32Array): boolean {
    const { local, batchBlocks } = this.job.spec
    if ((local?.fragments ?? 1) > 1 || batchBlocks > 1 || this.#tolerance > 0) return true
    const named = new Set<number>(blocks.map(blockIndex))
    const values = [...sum].map((value) => Math.round(value))
    const many = new Map<number, number>()
    for (const index of named) many.set(values[index] ?? 0, (many.get(values[index] ?? 0) ?? 0) + 1)
    const others = values.some((value, i) => value !== 0 && !named.has(i))
    return !others && [...many].every(([value, count]) => value > 0 && count % value === 0)
  }

  /** I6: the bytes are those of the version that they are named after. */
  checkState(who: string, bytes: Uint8Array, version: VersionRef): void {
    const { parameters } = decodeVersionState(bytes, { ...this.job.form, version })
    if (!this.holds(version, parameters))
      this.#violations.report('I6', `${who} holds other parameters than those of version ${version.v}`)
  }

  /** I6: rounds begin from the version that the parameter server made, whichever member passed it on (G3). */
  checkBase(who: string, { v, id }: VersionRef, bytes: Uint8Array): void {
    const found = digest(bytes)
    const known = this.#bases.get(id) ?? found
    this.#bases.set(id, known)
    if (found !== known)
      this.#violations.report('I6', `${who} begins a round from other parameters of version ${v} than others do`)
  }

  holds(version: VersionRef, parameters: Float32Array): boolean {
    if (!this.#hasMoved(version, parameters)) return false
    const expected = this.#parameters.get(version.id)
    if (expected === undefined) this.#parameters.set(version.id, parameters.slice())
    return expected?.every((value, i) => Math.abs(value - (parameters[i] ?? Number.NaN)) < TOLERANCE) ?? true
  }
}

/** Members that the ring leaves out compute blocks beside it. */
function isOffRing({ members, defect }: Watching['scenario']): boolean {
  return members.linkless !== undefined || members.brokenLink !== undefined || defect === 'no-ring-steps'
}

function countsOf({ blocks }: StepRecord, length: number): Float32Array {
  const counts = new Float32Array(length)
  for (const block of blocks) counts[blockIndex(block)] = (counts[blockIndex(block)] ?? 0) + 1
  return counts
}
