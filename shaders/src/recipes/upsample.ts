// Nearest upsampling: one cell of the result per invocation.

import type { UpsampleDims } from '../kernels.ts'
import { array, type Binding, type Recipe, STREAM_WORKGROUP } from '../recipe.ts'

// x (B, C, H, W) → y (B, C, scale · H, scale · W)
export function upsampleForward(dims: UpsampleDims, capacity: number): Recipe {
  const { small, large } = sizes(dims)
  return onePass('forward', dims, large, [array('x', 'read', capacity * small), array('y', 'write', capacity * large)])
}

// dy (B, C, scale · H, scale · W) → dx (B, C, H, W)
export function upsampleBackward(dims: UpsampleDims, capacity: number): Recipe {
  const { small, large } = sizes(dims)
  const bindings = [array('dy', 'read', capacity * large), array('dx', 'write', capacity * small)]
  return onePass('backward', dims, small, bindings)
}

/** Cells of a sample. */
function sizes({ channels, height, width, scale }: UpsampleDims): { readonly small: number; readonly large: number } {
  const small = channels * height * width
  return { small, large: small * scale * scale }
}

function onePass(
  entryPoint: 'forward' | 'backward',
  { channels, height, width, scale }: UpsampleDims,
  cells: number,
  bindings: readonly Binding[],
): Recipe {
  return {
    scratch: {},
    passes: [
      {
        file: 'upsample',
        entryPoint,
        constants: { CHANNELS: channels, HEIGHT: height, WIDTH: width, SCALE: scale },
        bindings,
        workgroup: STREAM_WORKGROUP,
        threads: (samples) => samples * cells,
      },
    ],
  }
}
