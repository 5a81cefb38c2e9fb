// Samples of a text: windows of its tokens, and as targets the same windows one token further on.

import { type BlockId, type BlockRange, epochOf, trainingWindows, validationWindows } from '@starling-grid/protocol'

/** Where in a batch of (samples, context) the windows of a block go. */
export interface WindowsInto {
  readonly x: Int32Array
  readonly y: Int32Array
  /** first sample */
  readonly at: number
  readonly context: number
}

/** First tokens of a block's windows, the same for every volunteer. */
export function windowsOf(
  block: BlockId,
  range: BlockRange,
  { tokens, context, seed }: { readonly tokens: number; readonly context: number; readonly seed: number },
): number[] {
  const shard = { tokens, context, samples: range.shard.samples }
  return block.startsWith('v:')
    ? validationWindows(shard, range)
    : trainingWindows(shard, range, { seed, epoch: epochOf(block) })
}

export function copyWindows(
  tokens: Uint16Array | Int32Array,
  starts: readonly number[],
  { x, y, at, context }: WindowsInto,
): void {
  for (const [i, start] of starts.entries()) {
    x.set(tokens.subarray(start, start + context), (at + i) * context)
    y.set(tokens.subarray(start + 1, start + 1 + context), (at + i) * context)
  }
}
