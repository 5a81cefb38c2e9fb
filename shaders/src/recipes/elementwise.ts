// Elementwise operators: four elements per invocation.

import type { ElementwiseDims } from '../kernels.ts'
import { array, STREAM_WORKGROUP, type Recipe } from '../recipe.ts'

type ElementwiseFile = 'add' | 'relu' | 'tanh' | 'sigmoid'

const FORWARD = { x: 'read', y: 'write' } as const
const BACKWARD = { y: 'read', dy: 'read', dx: 'write' } as const

// x (B, size) → y (B, size)
export function elementwiseForward(file: ElementwiseFile): MakeRecipe {
  return onePass(file, 'forward', FORWARD)
}

// y, dy (B, size) → dx (B, size)
export function elementwiseBackward(file: ElementwiseFile): MakeRecipe {
  return onePass(file, 'backward', BACKWARD)
}

// a, b (B, size) → y (B, size)
export const elementwiseSum: MakeRecipe = (dims, capacity) => onePass('add', 'forward', { a: 'read', b: 'read', y: 'write' })(dims, capacity)

type MakeRecipe = (dims: ElementwiseDims, capacity: number) => Recipe

function onePass(file: ElementwiseFile, entryPoint: string, access: Record<string, 'read' | 'write'>): MakeRecipe {
  return ({ size }, capacity) => {
    const bindings = Object.entries(access).map(([name, how]) => array(name, how, capacity * size, 'vec4f'))
    const threads = (samples: number) => Math.ceil((samples * size) / 4)
    return { scratch: {}, passes: [{ file, entryPoint, constants: { SIZE: size }, bindings, workgroup: STREAM_WORKGROUP, threads }] }
  }
}
