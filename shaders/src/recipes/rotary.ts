// Queries, keys and values into the packed heads of attention: one of them per call, one pair of elements per
// invocation.

import type { KernelOperands, RotaryDims } from '../kernels.ts'
import { array, STREAM_WORKGROUP, type Pass, type Recipe } from '../recipe.ts'

// x (R, own, headSize), angles (T, headSize) → part of qkv (R, 3, heads, headSize)
export function rotaryForward(
  dims: RotaryDims,
  capacity: number,
  { places }: KernelOperands<'rotary.forward', unknown>,
): Recipe {
  const { x, packed, pass } = rotary(dims, capacity)
  const placed = places === undefined ? [] : [array('places', 'read', capacity, 'i32')]
  return {
    scratch: {},
    passes: [
      {
        ...pass,
        entryPoint: places === undefined ? 'forward' : 'forward_placed',
        bindings: [array('x', 'read', x), array('qkv', 'write', packed), ...pass.bindings, ...placed],
        threads: (samples) => (samples * dims.length * dims.heads * dims.headSize) / 2,
      },
    ],
  }
}

// part of dqkv (R, 3, heads, headSize), angles (T, headSize) → dx (R, own, headSize)
export function rotaryBackward(dims: RotaryDims, capacity: number): Recipe {
  const { x, packed, pass } = rotary(dims, capacity)
  return {
    scratch: {},
    passes: [
      {
        ...pass,
        entryPoint: 'backward',
        bindings: [array('dqkv', 'read', packed), array('dx', 'write', x), ...pass.bindings],
        threads: (samples) => (samples * dims.length * dims.own * dims.headSize) / 2,
      },
    ],
  }
}

function rotary({ length, heads, own, headSize, part, turns, context = length }: RotaryDims, capacity: number) {
  const rows = capacity * length
  const pass = {
    file: 'rotary',
    constants: { LENGTH: length, HEADS: heads, OWN: own, HALF: headSize / 2, PART: part, TURNS: turns ? 1 : 0 },
    bindings: [array('angles', 'read', context * headSize)],
    workgroup: STREAM_WORKGROUP,
  } as const satisfies Omit<Pass, 'entryPoint' | 'threads'>
  return { x: rows * own * headSize, packed: rows * 3 * heads * headSize, pass }
}
