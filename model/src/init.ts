// Initial values: the same seed gives the same bytes on every machine, so version 0 can be checked by anyone.
// PyTorch's default for linear and convolution layers (Kaiming uniform with a = √5): U(−1/√fanIn, 1/√fanIn).

import { parameterLayout, type ParameterEntry } from './param-layout.ts'
import { randomWords } from './random.ts'
import type { ModelSpec } from './spec.ts'

/** f32 holds 24 significant bits: more would round and make the distribution uneven. */
const UNIFORM_BITS = 24

export function initialParameters(spec: ModelSpec, seed: number): Float32Array<ArrayBuffer> {
  const { total, entries } = parameterLayout(spec)
  const flat = new Float32Array(total)
  for (const [index, entry] of entries.entries()) fillUniform(flat, entry, randomWords(seed, index))
  return flat
}

function fillUniform(flat: Float32Array, entry: ParameterEntry, word: (counter: number) => number): void {
  const bound = Math.fround(1 / Math.sqrt(entry.fanIn))
  for (let i = 0; i < entry.length; i++) {
    const unit = (word(i) >>> (32 - UNIFORM_BITS)) / 2 ** UNIFORM_BITS // in [0, 1), exact
    flat[entry.offset + i] = Math.fround((2 * unit - 1) * bound)
  }
}
