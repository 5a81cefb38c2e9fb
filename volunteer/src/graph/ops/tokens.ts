// Images as sequences of tokens, with a learned one before them, and nearest upsampling.

import { imageSizes, type TokenDims, type TransposeDims, type UpsampleDims } from '@starling-grid/shaders'
import { type Node, type Op, parameter } from './op.ts'

// x (C, H, W) → y (H · W, C); x (T, C) → y (C, T)
export const transpose: Op<'transpose'> = {
  forward: (node) => [
    { kernel: 'transpose.forward', dims: transposeDims(node), operands: { x: node.inputs[0], y: node.y } },
  ],
  backward(node, { dy, dinputs: [dx] }) {
    const { rows, columns } = transposeDims(node)
    const dims = { rows: columns, columns: rows }
    return dx ? [{ kernel: 'transpose.forward', dims, operands: { x: dy, y: dx } }] : []
  },
}

// x (T, C), weight (C,) → y (T + 1, C)
export const classToken: Op<'class_token'> = {
  forward: (node) => [
    {
      kernel: 'class_token.forward',
      dims: tokenDims(node),
      operands: { x: node.inputs[0], weight: parameter(node, 'weight'), y: node.y },
    },
  ],
  backward(node, { dy, dinputs: [dx], dparameters: { weight: dweight } }) {
    const dims = tokenDims(node)
    const { size, token } = dims
    if (!dweight) throw new Error('internal: a class token without a gradient')
    return [
      { kernel: 'class_token.parameterGradient', dims, operands: { dy, dweight } },
      ...(dx
        ? [
            {
              kernel: 'concat.backward',
              dims: { size, offset: token, total: size + token },
              operands: { dy, dx },
            } as const,
          ]
        : []),
    ]
  },
}

// x (T, C) → y (C,)
export const firstToken: Op<'first_token'> = {
  forward: ({ inputs: [x], y }) => [
    // the part of x that begins at 0
    { kernel: 'concat.backward', dims: { size: y.size, offset: 0, total: x.size }, operands: { dy: x, dx: y } },
  ],
  backward: ({ inputs: [x], y }, { dy, dinputs: [dx] }) =>
    dx ? [{ kernel: 'first_token.backward', dims: { size: x.size, token: y.size }, operands: { dy, dx } }] : [],
}

// x (C, H, W) → y (C, scale · H, scale · W)
export const upsample: Op<'upsample'> = {
  forward: (node) => [
    { kernel: 'upsample.forward', dims: upsampleDims(node), operands: { x: node.inputs[0], y: node.y } },
  ],
  backward: (node, { dy, dinputs: [dx] }) =>
    dx ? [{ kernel: 'upsample.backward', dims: upsampleDims(node), operands: { dy, dx } }] : [],
}

function transposeDims({ inputs: [x] }: Pick<Node, 'inputs'>): TransposeDims {
  const [rows = 1] = x.shape
  return { rows, columns: x.size / rows }
}

function tokenDims({ inputs: [x], y }: Pick<Node, 'inputs' | 'y'>): TokenDims {
  return { size: x.size, token: y.size - x.size }
}

function upsampleDims({ inputs: [x], layer: { scale } }: Node<'upsample'>): UpsampleDims {
  return { ...imageSizes(x.shape), scale }
}
