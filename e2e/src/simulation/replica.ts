// Parameters of the simulation: one float per training block of the run, counting how often the block is in them. What a
// version id must hold is kept beside it, so that every claim can be compared with the truth (I1, I4, I6).
import { type BlockId, blockIndex, digest, epochOf, type Sha256, type StepRecord, type VersionRef } from '@starling-grid/protocol'
import type { Violations } from './violations.ts'

export interface Replica {
  readonly version: VersionRef
  readonly counts: Float32Array
}

/** The truth: what each version id holds, by construction from its records. */
export class History {
  readonly #blocksPerEpoch: number
  readonly #length: number
  readonly #counts = new Map<string, Float32Array>()
  readonly #violations: Violations

  constructor(genesis: VersionRef, shape: { readonly blocks: number; readonly epochs: number }, violations: Violations) {
    this.#blocksPerEpoch = shape.blocks
    this.#length = shape.blocks * shape.epochs
    this.#violations = violations
    this.#counts.set(genesis.id, new Float32Array(this.#length))
  }

  get length(): number {
    return this.#length
  }

  seat(block: BlockId): number {
    return epochOf(block) * this.#blocksPerEpoch + blockIndex(block)
  }

  /** One-hot sum of the blocks: the "gradient" of a share. */
  gradient(blocks: readonly BlockId[]): Float32Array {
    const vector = new Float32Array(this.#length)
    for (const block of blocks) vector[this.seat(block)] = (vector[this.seat(block)] ?? 0) + 1
    return vector
  }

  /** Registers what `version`, made by `record` from `parent`, must hold. */
  record(parent: VersionRef, record: StepRecord, version: VersionRef): void {
    const before = this.#counts.get(parent.id)
    if (this.#counts.has(version.id) || before === undefined) return
    const counts = before.slice()
    for (const block of record.blocks) counts[this.seat(block)] = (counts[this.seat(block)] ?? 0) + 1
    this.#counts.set(version.id, counts)
    if (counts.some((count) => count > 1)) this.#violations.report('I1', `version ${version.v} holds a block twice`)
  }

  /** I6: what is claimed is what is held. */
  check(who: string, replica: Replica): void {
    const truth = this.#counts.get(replica.version.id)
    if (truth === undefined) return this.#violations.report('I6', `${who} claims an unknown version ${replica.version.v}`)
    if (truth.some((count, i) => count !== replica.counts[i])) this.#violations.report('I6', `${who} claims version ${replica.version.v} and holds something else`)
  }

  blocksOf(version: VersionRef): number | undefined {
    return this.#counts.get(version.id)?.reduce((sum, count) => sum + count, 0)
  }
}

export function digestOf(replica: Replica): Sha256 {
  return digest(new TextEncoder().encode(`${replica.version.id} ${replica.counts.join()}`))
}
