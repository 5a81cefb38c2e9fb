// The mean of each channel, for software adapters: one plane per invocation.

import type { GlobalAvgPoolDims } from '../kernels.ts'
import { array, matrix, STREAM_WORKGROUP, TILE_WORKGROUP, type Recipe } from '../recipe.ts'
import type { MakeRecipe } from '../variants.ts'
import type { ShareRows } from './row-sharing.ts'

// x (B, C, plane) → y (B, C)
export function globalavgpoolForward(share: ShareRows): MakeRecipe<'globalavgpool.forward'> {
  return (dims, capacity) => forward(share, dims, capacity)
}

function forward(share: ShareRows, { channels, plane }: GlobalAvgPoolDims, capacity: number): Recipe {
  const { sharing, invocations } = share({ steps: Math.ceil(plane / 4), reads: 1, workgroup: TILE_WORKGROUP })
  const bindings = [matrix('x', 'read', capacity * channels, plane), array('y', 'write', capacity * channels)]
  return {
    scratch: {},
    passes: [
      {
        file: 'globalavgpool',
        entryPoint: 'forward',
        constants: { CHANNELS: channels, PLANE: plane },
        bindings,
        ...sharing,
        threads: (samples) => invocations(samples * channels),
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
