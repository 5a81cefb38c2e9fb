// Elementwise operators: four elements per invocation.

import type { ElementwiseDims } from '../kernels.ts'
import { array, STREAM_WORKGROUP, type Recipe } from '../recipe.ts'

type ElementwiseFile = 'relu' | 'tanh' | 'sigmoid'

// x (B, size) → y (B, size)
export function elementwiseForward(file: ElementwiseFile) {
  return (dims: ElementwiseDims, capacity: number): Recipe => onePass(file, 'forward', dims, capacity, { x: 'read', y: 'write' })
}

// y, dy (B, size) → dx (B, size)
export function elementwiseBackward(file: ElementwiseFile) {
  return (dims: ElementwiseDims, capacity: number): Recipe => onePass(file, 'backward', dims, capacity, { y: 'read', dy: 'read', dx: 'write' })
}

function onePass(file: ElementwiseFile, entryPoint: string, { size }: ElementwiseDims, capacity: number, access: Record<string, 'read' | 'write'>): Recipe {
  const bindings = Object.entries(access).map(([name, how]) => array(name, how, capacity * size, 'vec4f'))
  const threads = (samples: number) => Math.ceil((samples * size) / 4)
  return { scratch: {}, passes: [{ file, entryPoint, constants: { SIZE: size }, bindings, workgroup: STREAM_WORKGROUP, threads }] }
}
