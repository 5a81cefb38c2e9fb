// Cuts the flat vector of a model for the parameter server. Norms are summed over blocks of a fixed size in a fixed
// order; each shard has a range of whole blocks. Independent of threads.
import { BLOCK_ELEMENTS, type ParameterLayout } from '@starling-grid/model'
import { sumOfSquares } from '@starling-grid/shaders'

/**
 * Elements below which a shard's thread costs more than it saves: AdamW does 100 M a second, a message to a thread
 * takes 0.1 ms.
 */
const MIN_SHARD_ELEMENTS = 1024 * 1024
/** Shards of one run: beyond it the memory's bandwidth is shared, not multiplied. */
const MAX_SHARDS = 16

export interface KeyRange {
  readonly start: number
  /** exclusive */
  readonly end: number
}

/**
 * Threads for a model: none below MIN_SHARD_ELEMENTS, otherwise as many as the cores beside the event loop have work
 * for.
 */
export function threadsFor(total: number, cores: number): number {
  return Math.min(MAX_SHARDS, Math.floor(total / MIN_SHARD_ELEMENTS), Math.max(1, cores - 1))
}

/**
 * `count` ranges of whole blocks, as even as can be; fewer when there are fewer blocks. No norm depends on how many
 * there are.
 */
export function keyRanges(total: number, count: number): KeyRange[] {
  const blocks = Math.ceil(total / BLOCK_ELEMENTS)
  const shards = Math.max(1, Math.min(count, blocks))
  const border = (i: number): number => Math.min(total, Math.floor((blocks * i) / shards) * BLOCK_ELEMENTS)
  return Array.from({ length: shards }, (_, i) => ({ start: border(i), end: border(i + 1) }))
}

/** The layout as it is inside one range: entries cut to it, offsets counted from its start. */
export function layoutOfRange({ trained, entries }: ParameterLayout, { start, end }: KeyRange): ParameterLayout {
  const inside = (element: number): number => Math.min(Math.max(element, start), end) - start
  const parts = entries.map((entry) => ({
    ...entry,
    offset: inside(entry.offset),
    length: inside(entry.offset + entry.length) - inside(entry.offset),
  }))
  return { total: end - start, trained: inside(trained), entries: parts.filter(({ length }) => length > 0) }
}

/** Σ x² of each block of a vector that begins with a block: sequential sums in double precision. */
export function blockSquares(values: Float32Array): Float64Array {
  const sums = new Float64Array(Math.ceil(values.length / BLOCK_ELEMENTS))
  for (let i = 0; i < sums.length; i++)
    sums[i] = sumOfSquares(values.subarray(i * BLOCK_ELEMENTS, (i + 1) * BLOCK_ELEMENTS))
  return sums
}

/** ‖x‖ from the blocks of all ranges in their order: one sequential sum, the same bits whatever the ranges are. */
export function normOf(rangeSquares: readonly Float64Array[]): number {
  let sum = 0
  for (const squares of rangeSquares) for (const square of squares) sum += square
  return Math.sqrt(sum)
}
