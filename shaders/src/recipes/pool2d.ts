// Pooling for software adapters: one element per invocation, gathering in both directions.

import type { Pool2dDims } from '../kernels.ts'
import { array, STREAM_WORKGROUP, type Recipe } from '../recipe.ts'

// x (B, C, H, W) → y (B, C, H', W')
export function poolForward(file: 'maxpool2d' | 'avgpool2d') {
  return (dims: Pool2dDims, capacity: number): Recipe => onePass(file, 'forward', dims, {
    bindings: [array('x', 'read', capacity * inputSize(dims)), array('y', 'write', capacity * outputSize(dims))],
    threads: samples => samples * outputSize(dims),
  })
}

// x, dy (B, C, H', W') → dx (B, C, H, W)
export function maxpool2dBackward(dims: Pool2dDims, capacity: number): Recipe {
  return onePass('maxpool2d', 'backward', dims, {
    bindings: [
      array('x', 'read', capacity * inputSize(dims)), array('dy', 'read', capacity * outputSize(dims)),
      array('dx', 'write', capacity * inputSize(dims)),
    ],
    threads: samples => samples * inputSize(dims),
  })
}

// dy (B, C, H', W') → dx (B, C, H, W)
export function avgpool2dBackward(dims: Pool2dDims, capacity: number): Recipe {
  return onePass('avgpool2d', 'backward', dims, {
    bindings: [array('dy', 'read', capacity * outputSize(dims)), array('dx', 'write', capacity * inputSize(dims))],
    threads: samples => samples * inputSize(dims),
  })
}

type Rest = Pick<Recipe['passes'][number], 'bindings' | 'threads'>

function onePass(file: 'maxpool2d' | 'avgpool2d', entryPoint: string, dims: Pool2dDims, rest: Rest): Recipe {
  const constants = {
    CHANNELS: dims.channels, HEIGHT: dims.height, WIDTH: dims.width, OUT_HEIGHT: dims.outHeight, OUT_WIDTH: dims.outWidth,
    KERNEL: dims.kernel, STRIDE: dims.stride, PADDING: dims.padding,
  }
  return { scratch: {}, passes: [{ file, entryPoint, constants, workgroup: STREAM_WORKGROUP, ...rest }] }
}

function inputSize({ channels, height, width }: Pool2dDims): number {
  return channels * height * width
}

function outputSize({ channels, outHeight, outWidth }: Pool2dDims): number {
  return channels * outHeight * outWidth
}
