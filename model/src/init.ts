// Initial values: the same seed gives the same bytes on every machine, so version 0 can be checked by anyone.

import type { InitialValues } from './layers/rule.ts'
import { parameterLayout, type ParameterEntry } from './param-layout.ts'
import { randomWords } from './random.ts'
import type { ModelSpec } from './spec.ts'

/** f32 holds 24 significant bits: more would round and make the distribution uneven. */
const UNIFORM_BITS = 24
/**
 * Irwin and Hall: the sum of this many uniform numbers, less 6, is close to a standard normal one, and needs additions
 * only.
 */
const SUMMANDS = 12

export function initialParameters(spec: ModelSpec, seed: number): Float32Array<ArrayBuffer> {
  const { total, entries } = parameterLayout(spec)
  const flat = new Float32Array(total)
  for (const [index, entry] of entries.entries()) fill(flat, entry, randomWords(seed, index))
  return flat
}

type RandomWord = (counter: number) => number

function fill(flat: Float32Array, { offset, length, initial }: ParameterEntry, word: RandomWord): void {
  const value = valueOf(initial, word)
  for (let i = 0; i < length; i++) flat[offset + i] = value(i)
}

function valueOf(initial: InitialValues, word: RandomWord): (i: number) => number {
  switch (initial.type) {
    case 'constant':
      return () => initial.value
    case 'angles':
      throw new Error('internal: angles are no initial values')
    case 'normal':
      return (i) => Math.fround(normal(i, word) * initial.deviation)
    case 'uniform': {
      const bound = Math.fround(1 / Math.sqrt(initial.fanIn))
      return (i) => Math.fround((2 * uniform(i, word) - 1) * bound)
    }
    default:
      return initial satisfies never
  }
}

/** In [0, 1), exact. */
function uniform(counter: number, word: RandomWord): number {
  return (word(counter) >>> (32 - UNIFORM_BITS)) / 2 ** UNIFORM_BITS
}

function normal(i: number, word: RandomWord): number {
  let sum = -SUMMANDS / 2
  for (let k = 0; k < SUMMANDS; k++) sum += uniform(i * SUMMANDS + k, word)
  return sum
}
