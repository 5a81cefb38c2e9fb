// Pooling for software adapters: gathering in both directions.

import type { DerivativeDims, Pool2dDims } from '../kernels.ts'
import { array, matrix, STREAM_WORKGROUP, type MatrixBinding, type Recipe } from '../recipe.ts'
import { gradientMatrix, withFinish } from './finish.ts'

// x (B, C, H, W) → y (B, C, H', W'), one element per invocation
export function maxpool2dForward(dims: Pool2dDims, capacity: number): Recipe {
  return onePass('maxpool2d', 'forward', dims, {
    bindings: [array('x', 'read', capacity * inputSize(dims)), array('y', 'write', capacity * outputSize(dims))],
    threads: (samples) => samples * outputSize(dims),
  })
}

// x (B, C, H, W) → y (B, C, H', W'), four elements of a line per invocation
export function avgpool2dForward(dims: Pool2dDims, capacity: number): Recipe {
  const inPairs = dims.kernel === 2 && dims.stride === 2 && dims.padding === 0
  const x = inPairs
    ? matrix('x', 'read', capacity * dims.channels * dims.height, dims.width)
    : array('x', 'read', capacity * inputSize(dims))
  return onePass('avgpool2d', inPairs ? 'forward_pairs' : 'forward', dims, {
    bindings: [x, matrix('y', 'write', capacity * dims.channels * dims.outHeight, dims.outWidth)],
    threads: (samples) => samples * dims.channels * dims.outHeight * Math.ceil(dims.outWidth / 4),
  })
}

// x, dy (B, C, H', W'), activated (B, C, H, W) → dx (B, C, H, W), four elements of a line per invocation
export function maxpool2dBackward(dims: Pool2dDims & DerivativeDims, capacity: number): Recipe {
  return onePass('maxpool2d', 'backward', dims, {
    bindings: [
      array('x', 'read', capacity * inputSize(dims)),
      array('dy', 'read', capacity * outputSize(dims)),
      ...inputGradient(dims, capacity),
    ],
    threads: (samples) => inputQuads(dims, samples),
  })
}

// dy (B, C, H', W'), activated (B, C, H, W) → dx (B, C, H, W), four elements of a line per invocation
export function avgpool2dBackward(dims: Pool2dDims & DerivativeDims, capacity: number): Recipe {
  return onePass('avgpool2d', 'backward', dims, {
    bindings: [array('dy', 'read', capacity * outputSize(dims)), ...inputGradient(dims, capacity)],
    threads: (samples) => inputQuads(dims, samples),
  })
}

function inputGradient(
  { channels, height, width, derivative }: Pool2dDims & DerivativeDims,
  capacity: number,
): MatrixBinding[] {
  return gradientMatrix('dx', { rows: capacity * channels * height, columns: width, derivative })
}

function inputQuads({ channels, height, width }: Pool2dDims, samples: number): number {
  return samples * channels * height * Math.ceil(width / 4)
}

type Rest = Pick<Recipe['passes'][number], 'bindings' | 'threads'>

function onePass(
  file: 'maxpool2d' | 'avgpool2d',
  entryPoint: string,
  dims: Pool2dDims & DerivativeDims,
  rest: Rest,
): Recipe {
  const constants = {
    CHANNELS: dims.channels,
    HEIGHT: dims.height,
    WIDTH: dims.width,
    OUT_HEIGHT: dims.outHeight,
    OUT_WIDTH: dims.outWidth,
    KERNEL: dims.kernel,
    STRIDE: dims.stride,
    PADDING: dims.padding,
    IN_QUADS: Math.ceil(dims.width / 4),
    OUT_QUADS: Math.ceil(dims.outWidth / 4),
  }
  return {
    scratch: {},
    passes: [withFinish({ file, entryPoint, constants, workgroup: STREAM_WORKGROUP, ...rest }, dims)],
  }
}

function inputSize({ channels, height, width }: Pool2dDims): number {
  return channels * height * width
}

function outputSize({ channels, outHeight, outWidth }: Pool2dDims): number {
  return channels * outHeight * outWidth
}
