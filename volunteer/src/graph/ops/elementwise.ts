// Operators that look at one element at a time.

import type { Op } from './op.ts'

/** Activations whose derivative can be read off their output. */
type FromOutput = 'relu' | 'tanh' | 'sigmoid'

// x (…) → y (…)
export function fromOutput<O extends FromOutput>(op: O): Op<O> {
  const forward: `${FromOutput}.forward` = `${op}.forward`
  const backward: `${FromOutput}.backward` = `${op}.backward`
  return {
    forward: ({ inputs: [x], y }) => [{ kernel: forward, dims: { size: x.size }, operands: { x, y } }],
    backward: ({ y }, { dy, dinputs: [dx] }) => (dx ? [{ kernel: backward, dims: { size: y.size }, operands: { y, dy, dx } }] : []),
  }
}
