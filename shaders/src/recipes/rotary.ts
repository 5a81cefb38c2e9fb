// Queries, keys and values into the packed heads of attention: one of them per call, one pair of elements per
// invocation.

import type { RotaryDims } from '../kernels.ts'
import { array, STREAM_WORKGROUP, type Binding, type Recipe } from '../recipe.ts'

// x (R, own, headSize), angles (T, headSize) → part of qkv (R, 3, heads, headSize)
export function rotaryForward(dims: RotaryDims, capacity: number): Recipe {
  const { x, packed } = lengthsOf(dims, capacity)
  return onePass(dims, 'forward', dims.heads, [array('x', 'read', x), array('qkv', 'write', packed)])
}

// part of dqkv (R, 3, heads, headSize), angles (T, headSize) → dx (R, own, headSize)
export function rotaryBackward(dims: RotaryDims, capacity: number): Recipe {
  const { x, packed } = lengthsOf(dims, capacity)
  return onePass(dims, 'backward', dims.own, [array('dqkv', 'read', packed), array('dx', 'write', x)])
}

function lengthsOf({ length, heads, own, headSize }: RotaryDims, capacity: number) {
  const rows = capacity * length
  return { x: rows * own * headSize, packed: rows * 3 * heads * headSize }
}

// oxlint-disable-next-line max-params -- what differs between the directions, and nothing else
function onePass(
  { length, heads, own, headSize, part, turns }: RotaryDims,
  entryPoint: 'forward' | 'backward',
  turned: number,
  bindings: readonly Binding[],
): Recipe {
  const half = headSize / 2
  return {
    scratch: {},
    passes: [
      {
        file: 'rotary',
        entryPoint,
        constants: { LENGTH: length, HEADS: heads, OWN: own, HALF: half, PART: part, TURNS: turns ? 1 : 0 },
        bindings: [...bindings, array('angles', 'read', length * headSize)],
        workgroup: STREAM_WORKGROUP,
        threads: (samples) => samples * length * turned * half,
      },
    ],
  }
}
