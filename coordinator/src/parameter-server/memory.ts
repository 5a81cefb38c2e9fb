// The vectors of a parameter server, in memory that its threads share: nothing is copied between them but numbers.
import type { UpdateRule } from '@starling-grid/model'
import { slotNames } from '@starling-grid/shaders'

/** Versions whose parameters are kept for volunteers that were granted them, and to compensate what they push late. */
const KEPT_VERSIONS = 12
/** Bytes for all kept versions together; large models keep fewer, but never fewer than two. */
const KEPT_BYTES = 512 * 1024 * 1024

export interface ServerMemory {
  /** parameters of the kept versions, (total,) each */
  readonly versions: readonly Float32Array[]
  /** optimizer state of the head and of the version being made, (trained,) each vector */
  readonly slots: readonly [readonly Float32Array[], readonly Float32Array[]]
  /** the push being taken, (total,) */
  readonly gradient: Float32Array
  /** Σ of the pushes that are no version yet, (total,) */
  readonly sum: Float32Array
  /**
   * moving mean of the squared gradient, (trained,), and what it was when the head was made: only where late pushes are
   * compensated
   */
  readonly square: Float32Array | undefined
  readonly squareAtHead: Float32Array | undefined
}

export function keptVersions(total: number): number {
  return Math.max(2, Math.min(KEPT_VERSIONS, Math.floor(KEPT_BYTES / (total * Float32Array.BYTES_PER_ELEMENT))))
}

export interface MemoryOptions {
  /** whose parameters are kept */
  readonly versions: number
  readonly compensated: boolean
  /** with other threads */
  readonly shared: boolean
}

export function allocate(
  { layout, optimizer }: Pick<UpdateRule, 'layout' | 'optimizer'>,
  { versions, compensated, shared }: MemoryOptions,
): ServerMemory {
  const vector = (length: number): Float32Array => {
    const bytes = length * Float32Array.BYTES_PER_ELEMENT
    return new Float32Array(shared ? new SharedArrayBuffer(bytes) : new ArrayBuffer(bytes))
  }
  const { total, trained } = layout
  const slots = (): Float32Array[] => slotNames(optimizer).map(() => vector(trained))
  return {
    versions: Array.from({ length: versions }, () => vector(total)),
    slots: [slots(), slots()],
    gradient: vector(total),
    sum: vector(total),
    square: compensated ? vector(trained) : undefined,
    squareAtHead: compensated ? vector(trained) : undefined,
  }
}
