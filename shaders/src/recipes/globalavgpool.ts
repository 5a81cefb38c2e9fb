// The mean of each channel, for software adapters: one plane per invocation.

import type { GlobalAvgPoolDims } from '../kernels.ts'
import { array, matrix, STREAM_WORKGROUP, TILE_WORKGROUP, type Recipe } from '../recipe.ts'

// x (B, C, plane) → y (B, C)
export function globalavgpoolForward({ channels, plane }: GlobalAvgPoolDims, capacity: number): Recipe {
  const bindings = [matrix('x', 'read', capacity * channels, plane), array('y', 'write', capacity * channels)]
  const threads = (samples: number) => samples * channels
  return {
    scratch: {},
    passes: [
      {
        file: 'globalavgpool',
        entryPoint: 'forward',
        constants: { CHANNELS: channels, PLANE: plane },
        bindings,
        workgroup: TILE_WORKGROUP,
        threads,
      },
    ],
  }
}

// dy (B, C) → dx (B, C, plane)
export function globalavgpoolBackward({ channels, plane }: GlobalAvgPoolDims, capacity: number): Recipe {
  const quads = Math.ceil(plane / 4)
  const bindings = [array('dy', 'read', capacity * channels), matrix('dx', 'write', capacity * channels, plane)]
  const constants = { CHANNELS: channels, PLANE: plane, QUADS: quads }
  const threads = (samples: number) => samples * channels * quads
  return {
    scratch: {},
    passes: [
      { file: 'globalavgpool', entryPoint: 'backward', constants, bindings, workgroup: STREAM_WORKGROUP, threads },
    ],
  }
}
