// What follows from a spec alone: the cosines and sines by which rotary positions turn. Source of the scalings:
// Hugging Face's configurations (`rope_type` default, linear, llama3).

import type { FixedEntry } from './param-layout.ts'
import type { Rope, RopeScaling } from './spec.ts'

/** (T, headSize): of each position the cosines of its angles, then their sines; computed in f64 and rounded once. */
export function constantValues({ initial, shape, kind }: FixedEntry): Float32Array<ArrayBuffer> {
  if (kind !== 'constant' || initial.type !== 'angles') throw new Error('internal: a tensor that has to be given')
  const [length = 0, headSize = 0] = shape
  const half = headSize / 2
  const table = new Float32Array(length * headSize)
  for (const [i, frequency] of rotaryFrequencies(initial.rope, headSize).entries())
    for (let t = 0; t < length; t++) {
      table[t * headSize + i] = Math.cos(t * frequency)
      table[t * headSize + half + i] = Math.sin(t * frequency)
    }
  return table
}

/** Radians per position, of each pair of elements. */
export function rotaryFrequencies({ theta, scaling }: Rope, headSize: number): number[] {
  return Array.from({ length: headSize / 2 }, (_, i) => scaled(theta ** ((-2 * i) / headSize), scaling))
}

function scaled(frequency: number, scaling: RopeScaling | undefined): number {
  if (scaling === undefined) return frequency
  return scaling.rope_type === 'linear' ? frequency / scaling.factor : llama3(frequency, scaling)
}

/** Long waves are stretched, short ones stay, those between by a share. */
function llama3(frequency: number, scaling: Extract<RopeScaling, { rope_type: 'llama3' }>): number {
  const { factor, low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings: context } = scaling
  const turns = (context * frequency) / (2 * Math.PI)
  if (turns > high) return frequency
  if (turns < low) return frequency / factor
  const share = (turns - low) / (high - low)
  return (1 - share) * (frequency / factor) + share * frequency
}
