// Operators over the last dimension, and those that only arrange elements anew.

import { type ConcatDims, lastSize, type LinearDims } from '@starling-grid/shaders'
import type { Tensor } from '../tensor.ts'
import { type Node, type Op, weightAndBias, weightAndBiasGradients } from './op.ts'

// x (…, in), weight (out, in), bias (out,) → y (…, out)
export const linear: Op<'linear'> = {
  forward: (node) => [
    {
      kernel: 'linear.forward',
      dims: linearDims(node),
      operands: { x: node.inputs[0], y: node.y, ...weightAndBias(node) },
    },
  ],
  backward(node, gradients) {
    const dims = linearDims(node)
    const { weight } = weightAndBias(node)
    const {
      dy,
      dinputs: [dx],
    } = gradients
    return [
      {
        kernel: 'linear.parameterGradient',
        dims,
        operands: { x: node.inputs[0], dy, ...weightAndBiasGradients(gradients) },
      },
      ...(dx ? [{ kernel: 'linear.inputGradient', dims, operands: { weight, dy, dx } } as const] : []),
    ]
  },
}

// x (…) → y (elements,)
export const flatten: Op<'flatten'> = { forward: () => [], backward: () => [], view: true }

// a (…) + b (…) → y (…)
export const add: Op<'add'> = {
  forward({ inputs: [a, b, ...more], y }) {
    if (!b || more.length > 0) throw new Error('internal: sums of more than two branches are built two by two')
    return [{ kernel: 'add.forward', dims: { size: y.size }, operands: { a, b, y } }]
  },
  backward: () => [],
  passesGradient: true,
}

// gate a (…), value b (…) → y (…)
export const swiglu: Op<'swiglu'> = {
  forward: (node) => [
    { kernel: 'swiglu.forward', dims: { size: node.y.size }, operands: { ...branches(node), y: node.y } },
  ],
  backward(node, { dy, dinputs: [da, db] }) {
    const [dims, { a, b }] = [{ size: node.y.size }, branches(node)]
    return [
      ...(da ? [{ kernel: 'swiglu.gateGradient', dims, operands: { a, b, dy, dx: da } } as const] : []),
      ...(db ? [{ kernel: 'swiglu.valueGradient', dims, operands: { a, dy, dx: db } } as const] : []),
    ]
  },
}

function branches({ inputs: [a, b] }: Pick<Node, 'inputs'>): { a: Tensor; b: Tensor } {
  if (!b) throw new Error('internal: a gate without a value')
  return { a, b }
}

// x (c, …) and others of (d, …) → y (c + d + …, …)
export const concat: Op<'concat'> = {
  forward: (node) =>
    placesOf(node).map(
      ({ input, dims }) => ({ kernel: 'concat.forward', dims, operands: { x: input, y: node.y } }) as const,
    ),
  backward: (node, { dy, dinputs }) =>
    placesOf(node).flatMap(({ dims }, i) => {
      const dx = dinputs[i]
      return dx ? [{ kernel: 'concat.backward', dims, operands: { dy, dx } } as const] : []
    }),
}

function placesOf({ inputs, y }: Pick<Node, 'inputs' | 'y'>): { readonly input: Tensor; readonly dims: ConcatDims }[] {
  let offset = 0
  return inputs.map((input) => {
    const dims = { size: input.size, offset, total: y.size }
    offset += input.size
    return { input, dims }
  })
}

function linearDims({ inputs: [x], y }: Pick<Node, 'inputs' | 'y'>): LinearDims {
  const inputs = lastSize(x.shape)
  return { rows: x.size / inputs, in: inputs, out: lastSize(y.shape) }
}
