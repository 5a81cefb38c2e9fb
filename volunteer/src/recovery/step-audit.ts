// An audit of committed steps. It follows the chain by its reduced gradients, as a newcomer does, and computes each
// step's gradient once more from the blocks of its record. What another block, or an old one, put into a sum shows
// here, and nowhere else.
import { extend, type StepRecord, type VersionRef, sha256Of } from '@starling-grid/protocol'
import { bytesOf } from '../codec/numbers.ts'
import type { Compute } from '../compute.ts'
import type { Batches } from '../data/batch.ts'
import type { BatchSums } from '../graph/executor.ts'
import type { LocalVersion, DecodedVersion } from './local-version.ts'

/** ‖a − b‖ / ‖b‖ up to which two adapters' gradients are the same: they round otherwise */
export const MOST_DEVIATION = 1e-3
export const LEAST_COSINE = 0.999
/** part by which Σ loss may differ, for the same reason */
const MOST_LOSS_DEVIATION = 1e-3

export interface StepVerdict {
  readonly v: number
  /** why the step cannot be computed again; absent: it was */
  readonly skipped?: string
  /** ‖recomputed − committed‖ / ‖committed‖ of Σ gradients */
  readonly deviation?: number
  /** what is wrong with it; absent: nothing */
  readonly fault?: string
}

export interface StepAuditParts {
  readonly held: LocalVersion
  readonly compute: Compute
  readonly batches: Pick<Batches, 'of'>
  /**
   * whole blocks of a step, where its record names no other number; more came with a given sum, computed at an older
   * version (A1)
   */
  readonly batchBlocks: number
  /**
   * computed and sent as f32: encoding adds what it lost in earlier steps, and f16 rounds by more than MOST_DEVIATION
   */
  readonly isLossless: boolean
}

export class StepAudit {
  readonly #parts: StepAuditParts

  /** `held`: at the version that the first record follows. */
  constructor(parts: StepAuditParts) {
    this.#parts = parts
  }

  /** Goes on from a version that no sum leads to: one of the parameter server. */
  adopt(state: DecodedVersion, version: VersionRef): void {
    this.#parts.held.adopt(state, version)
  }

  /**
   * Compares one step, and follows it. `sum`: Σ gradients that all members applied, from any member that kept it; the
   * record's digest proves it.
   */
  async step(record: StepRecord, sum: Float32Array): Promise<StepVerdict> {
    const { held } = this.#parts
    const { v } = record
    if (held.version === undefined) throw new Error('internal: an audit without a version')
    if ((await sha256Of(bytesOf(sum))) !== record.gradDigest)
      return { v, fault: 'the sum is not the one that the record names' }
    const why = this.#whyNot(record)
    const verdict = why === undefined ? await this.#compared(record, sum) : { v, skipped: why }
    held.apply(record, extend(held.version, record), sum)
    return verdict
  }

  #whyNot({ kind, blocks, scaling }: StepRecord): string | undefined {
    const { batchBlocks, isLossless } = this.#parts
    if (kind !== 'ring') return 'it is no step of a ring'
    if (!isLossless) return 'its sums were encoded, or computed in f16'
    return blocks.length > (scaling?.batch ?? batchBlocks) ? 'a part of it was computed at an older version' : undefined
  }

  async #compared(record: StepRecord, sum: Float32Array): Promise<StepVerdict> {
    const { compute, batches } = this.#parts
    const lease = compute.buffers.lease()
    try {
      const batch = await batches.of(record.blocks)
      const computed = await compute.heldGradient(lease, batch)
      if (computed === undefined) throw new Error('internal: the lease of an audit ended')
      const { deviation, cosine } = compare(lease.values, sum)
      const fault =
        wrongCounts(record, { ...computed.sums, samples: batch.samples }) ?? wrongGradient(deviation, cosine)
      return { v: record.v, deviation, ...(fault === undefined ? {} : { fault }) }
    } finally {
      lease.end()
    }
  }
}

function wrongCounts(record: StepRecord, found: BatchSums & { readonly samples: number }): string | undefined {
  if (record.samples !== found.samples || record.targets !== found.targets)
    return (
      `its blocks have ${found.samples} samples and ${found.targets} targets, ` +
      `its record ${record.samples} and ${record.targets}`
    )
  const farOff = Math.abs(record.lossSum - found.lossSum) > MOST_LOSS_DEVIATION * Math.abs(found.lossSum)
  return farOff ? `the loss of its blocks sums to ${found.lossSum}, its record says ${record.lossSum}` : undefined
}

function wrongGradient(deviation: number, cosine: number): string | undefined {
  if (deviation < MOST_DEVIATION && cosine > LEAST_COSINE) return undefined
  return (
    `the gradient of its blocks is another: ‖difference‖ / ‖committed‖ ${deviation.toPrecision(3)}, ` +
    `cosine ${cosine.toPrecision(6)}`
  )
}

/** Of what was found with what is expected. Two zeros are equal. */
function compare(found: Float32Array, expected: Float32Array): { readonly deviation: number; readonly cosine: number } {
  let [difference, square, foundSquare, dot] = [0, 0, 0, 0]
  for (let i = 0; i < expected.length; i++) {
    const [a, b] = [found[i] ?? 0, expected[i] ?? 0]
    difference += (a - b) ** 2
    square += b ** 2
    foundSquare += a ** 2
    dot += a * b
  }
  if (difference === 0) return { deviation: 0, cosine: 1 }
  return { deviation: Math.sqrt(difference / square), cosine: dot / Math.sqrt(square * foundSquare) }
}
