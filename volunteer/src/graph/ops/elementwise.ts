// Activations: operators that look at one element at a time, and softmax.

import { type InputActivation, lastSize, type RowDims } from '@starling-grid/shaders'
import type { Node, Op } from './op.ts'

/** Activations whose derivative can be read off their output, and that have no setting. */
type FromOutput = 'relu' | 'tanh' | 'sigmoid'

// x (…) → y (…)
export function fromOutput<O extends FromOutput>(op: O): Op<O> {
  const forward: `${FromOutput}.forward` = `${op}.forward`
  const backward: `${FromOutput}.backward` = `${op}.backward`
  return {
    forward: ({ inputs: [x], y }) => [{ kernel: forward, dims: { size: x.size }, operands: { x, y } }],
    backward: ({ y }, { dy, dinputs: [dx] }) =>
      dx ? [{ kernel: backward, dims: { size: y.size }, operands: { y, dy, dx } }] : [],
  }
}

// x (…) → y (…)
export function fromInput<O extends InputActivation>(op: O): Op<O> {
  const forward: `${InputActivation}.forward` = `${op}.forward`
  const backward: `${InputActivation}.backward` = `${op}.backward`
  return {
    forward: ({ inputs: [x], y }) => [{ kernel: forward, dims: { size: x.size }, operands: { x, y } }],
    backward: ({ inputs: [x] }, { dy, dinputs: [dx] }) =>
      dx ? [{ kernel: backward, dims: { size: x.size }, operands: { x, dy, dx } }] : [],
  }
}

// x (…) → y (…)
export const leakyRelu: Op<'leaky_relu'> = {
  forward: ({ layer, inputs: [x], y }) => [
    { kernel: 'leaky_relu.forward', dims: { size: x.size, slope: layer.negative_slope }, operands: { x, y } },
  ],
  backward: ({ layer, y }, { dy, dinputs: [dx] }) =>
    dx
      ? [
          {
            kernel: 'leaky_relu.backward',
            dims: { size: y.size, slope: layer.negative_slope },
            operands: { y, dy, dx },
          },
        ]
      : [],
}

// x (…) → y (…)
export const scale: Op<'scale'> = {
  forward: ({ layer: { factor }, inputs: [x], y }) => [
    { kernel: 'scale.forward', dims: { size: x.size, factor }, operands: { x, y } },
  ],
  backward: ({ layer: { factor } }, { dy, dinputs: [dx] }) =>
    dx ? [{ kernel: 'scale.forward', dims: { size: dy.size, factor }, operands: { x: dy, y: dx } }] : [],
}

// x (…, columns) → y (…, columns), each row sums to 1
export const softmax: Op<'softmax'> = {
  forward: (node) => [{ kernel: 'softmax.forward', dims: rowDims(node), operands: { x: node.inputs[0], y: node.y } }],
  backward: (node, { dy, dinputs: [dx] }) =>
    dx ? [{ kernel: 'softmax.backward', dims: rowDims(node), operands: { y: node.y, dy, dx } }] : [],
}

/** The last dimension by itself, whatever dimensions lead it. */
export function rowDims({ inputs: [x] }: Pick<Node, 'inputs'>): RowDims {
  const columns = lastSize(x.shape)
  return { rows: x.size / columns, columns }
}
