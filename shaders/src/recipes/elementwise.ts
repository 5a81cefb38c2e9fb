// Elementwise operators: four elements per invocation.

import type { ElementwiseDims, LeakyReluDims, ScaleDims } from '../kernels.ts'
import { array, real, STREAM_WORKGROUP, type Constant, type Recipe } from '../recipe.ts'

type ElementwiseFile = 'add' | 'scale' | 'swiglu' | 'relu' | 'tanh' | 'sigmoid' | 'leaky-relu' | FromInputFile
/** Their derivatives need x, those of the others are read off y. */
type FromInputFile = 'gelu' | 'gelu-tanh' | 'silu'

const FORWARD = { x: 'read', y: 'write' } as const
const BACKWARD = { y: 'read', dy: 'read', dx: 'write' } as const
const BACKWARD_FROM_INPUT = { x: 'read', dy: 'read', dx: 'write' } as const

// x (B, size) → y (B, size)
export function elementwiseForward(file: ElementwiseFile): MakeElementwise {
  return onePass(file, 'forward', FORWARD)
}

// y, dy (B, size) → dx (B, size)
export function elementwiseBackward(file: Exclude<ElementwiseFile, FromInputFile>): MakeElementwise {
  return onePass(file, 'backward', BACKWARD)
}

// x, dy (B, size) → dx (B, size)
export function elementwiseBackwardFromInput(file: FromInputFile): MakeElementwise {
  return onePass(file, 'backward', BACKWARD_FROM_INPUT)
}

// a, b (B, size) → y (B, size)
export const elementwiseSum: MakeElementwise = onePass('add', 'forward', { a: 'read', b: 'read', y: 'write' })

// a, b (B, size) → y (B, size)
export const swigluForward: MakeElementwise = onePass('swiglu', 'forward', { a: 'read', b: 'read', y: 'write' })

// a, b, dy (B, size) → dx (B, size), of a
export const swigluGateGradient: MakeElementwise = onePass('swiglu', 'gate_gradient', {
  a: 'read',
  b: 'read',
  dy: 'read',
  dx: 'write',
})

// a, dy (B, size) → dx (B, size), of b
export const swigluValueGradient: MakeElementwise = onePass('swiglu', 'value_gradient', {
  a: 'read',
  dy: 'read',
  dx: 'write',
})

// x (B, size) → y (B, size)
export function scaleForward(dims: ScaleDims, capacity: number): Recipe {
  return onePass('scale', 'forward', FORWARD, { FACTOR: real(dims.factor) })(dims, capacity)
}

export function leakyReluForward(dims: LeakyReluDims, capacity: number): Recipe {
  return onePass('leaky-relu', 'forward', FORWARD, { SLOPE: real(dims.slope) })(dims, capacity)
}

export function leakyReluBackward(dims: LeakyReluDims, capacity: number): Recipe {
  return onePass('leaky-relu', 'backward', BACKWARD, { SLOPE: real(dims.slope) })(dims, capacity)
}

type MakeElementwise = (dims: ElementwiseDims, capacity: number) => Recipe

function onePass(
  file: ElementwiseFile,
  entryPoint: string,
  access: Record<string, 'read' | 'write'>,
  more: Record<string, Constant> = {},
): MakeElementwise {
  return ({ size }, capacity) => {
    const bindings = Object.entries(access).map(([name, how]) => array(name, how, capacity * size, 'vec4f'))
    const threads = (samples: number) => Math.ceil((samples * size) / 4)
    return {
      scratch: {},
      passes: [
        {
          file,
          uses: ['activations'],
          entryPoint,
          constants: { SIZE: size, ...more },
          bindings,
          workgroup: STREAM_WORKGROUP,
          threads,
        },
      ],
    }
  }
}
