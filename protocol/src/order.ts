// Which blocks a step trains, and which member computes each. Pure functions of the seed: the members present change
// the split and never the batch (R12).
import { type BlockId, trainingBlock } from './ids.ts'

/**
 * A small counter-based generator: SplitMix32-style mixing of a seed, the same integers on every machine.
 * Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators" (2014), with 32-bit finalisers.
 */
export function random32(seed: number): () => number {
  let state = seed | 0
  return () => {
    state = (state + 0x9e3779b9) | 0
    let z = state
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad)
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97)
    return (z ^ (z >>> 15)) >>> 0
  }
}

/** The order of block indices in an epoch: a Fisher–Yates shuffle seeded by (seed, epoch). */
export function epochOrder(seed: number, epoch: number, blocks: number): Uint32Array {
  const order = Uint32Array.from({ length: blocks }, (_, i) => i)
  shuffle(order, randomOf(seed, epoch))
  return order
}

/**
 * Units of `unit` consecutive blocks in an order that all epochs share, and the blocks of each shuffled anew. Whoever
 * takes some of them in a row needs the data of few units, and where it takes the same part again, of the same.
 */
export function unitOrder(seed: number, epoch: number, blocks: number, unit: number): Uint32Array {
  const [order, random] = [new Uint32Array(blocks), randomOf(~seed, epoch)] // other numbers than those of the units
  let at = 0
  for (const which of epochOrder(seed, 0, Math.ceil(blocks / unit))) {
    const first = which * unit
    const own = order.subarray(at, at + Math.min(unit, blocks - first))
    for (let i = 0; i < own.length; i++) own[i] = first + i
    shuffle(own, random)
    at += own.length
  }
  return order
}

function randomOf(seed: number, epoch: number): () => number {
  return random32(Math.imul(seed | 0, 0x9e3779b1) ^ Math.imul(epoch + 1, 0x85ebca6b))
}

function shuffle(order: Uint32Array, random: () => number): void {
  for (let i = order.length - 1; i > 0; i--) {
    const j = random() % (i + 1)
    const moved = order[i] ?? 0
    order[i] = order[j] ?? 0
    order[j] = moved
  }
}

/** The next up to `count` blocks of the epoch's order that are neither done nor taken. */
export function nextBlocks(
  order: Uint32Array,
  epoch: number,
  count: number,
  taken: (block: BlockId) => boolean,
): BlockId[] {
  const blocks: BlockId[] = []
  for (const index of order) {
    if (blocks.length === count) break
    const block = trainingBlock(epoch, index)
    if (!taken(block)) blocks.push(block)
  }
  return blocks
}

/**
 * Whole blocks for each member, in ring order, proportional to `assignments` (largest remainder; ties to the earlier
 * member). All members compute the same split from the same START.
 */
export function splitBlocks(blocks: readonly BlockId[], weights: readonly number[]): BlockId[][] {
  const total = weights.reduce((sum, weight) => sum + weight, 0)
  const exact = weights.map((weight) => (total > 0 ? (blocks.length * weight) / total : blocks.length / weights.length))
  const counts = exact.map(Math.floor)
  const byRemainder = exact
    .map((value, i) => ({ i, remainder: value - Math.floor(value) }))
    .sort((a, b) => b.remainder - a.remainder || a.i - b.i)
  let left = blocks.length - counts.reduce((sum, count) => sum + count, 0)
  for (const { i } of byRemainder) {
    if (left-- <= 0) break
    counts[i] = (counts[i] ?? 0) + 1
  }
  let next = 0
  return counts.map((count) => {
    next += count
    return blocks.slice(next - count, next)
  })
}

/**
 * The assignments of a planned step. Each member keeps the blocks that it learned from (A7) and gets the rest of its
 * part from the other blocks.
 */
export function assignmentsOfStep(
  { blocks, kept }: { readonly blocks: readonly BlockId[]; readonly kept?: readonly (readonly BlockId[])[] },
  parts: readonly number[],
): BlockId[][] {
  const even = splitBlocks(blocks, parts)
  if (kept === undefined) return even
  const taken = new Set(kept.flat())
  const wants = even.map((weight, rank) => Math.max(0, weight.length - (kept[rank]?.length ?? 0)))
  const rest = splitBlocks(
    blocks.filter((block) => !taken.has(block)),
    wants,
  )
  return parts.map((_, rank) => blocks.filter((block) => kept[rank]?.includes(block) || rest[rank]?.includes(block)))
}

/**
 * The assignments of a step after blocks of it changed members; a move of a block from where it is not changes nothing
 * (R12).
 */
export function assignmentsAfter(
  weights: readonly (readonly BlockId[])[],
  moves: readonly { readonly from: number; readonly to: number; readonly blocks: readonly BlockId[] }[],
): BlockId[][] {
  const now = weights.map((weight) => [...weight])
  for (const { from, to, blocks } of moves) {
    const moving = blocks.filter((block) => now[from]?.includes(block))
    if (now[to] === undefined || from === to) continue
    now[from] = (now[from] ?? []).filter((block) => !moving.includes(block))
    now[to] = [...now[to], ...moving]
  }
  return now
}

/**
 * Every planned block is in exactly one of the assignments, and nothing else is: no block has two contributors (R12).
 */
export function isPartition(planned: readonly BlockId[], weights: readonly (readonly BlockId[])[]): boolean {
  const all = weights.flat()
  const given = new Set(all)
  return all.length === planned.length && planned.every((block) => given.has(block))
}
