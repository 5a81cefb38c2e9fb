// Operators that slide a window over an image: convolution and pooling.

import {
  imageSizes,
  type Conv2dDims,
  type GlobalAvgPoolDims,
  type Pool2dAttrs,
  type Pool2dDims,
} from '@starling-grid/shaders'
import { type Node, type Op, weightAndBias, weightAndBiasGradients } from './op.ts'

// x (B, C, H, W), weight (O, C/g, K, K), bias (O,) → y (B, O, H', W')
export const conv2d: Op<'conv2d'> = {
  forward: (node) => [
    {
      kernel: 'conv2d.forward',
      dims: conv2dDims(node),
      operands: { x: node.inputs[0], y: node.y, ...weightAndBias(node) },
    },
  ],
  backward(node, gradients) {
    const dims = conv2dDims(node)
    const { weight } = weightAndBias(node)
    const {
      dy,
      dinputs: [dx],
    } = gradients
    return [
      {
        kernel: 'conv2d.parameterGradient',
        dims,
        operands: { x: node.inputs[0], dy, ...weightAndBiasGradients(gradients) },
      },
      ...(dx ? [{ kernel: 'conv2d.inputGradient', dims, operands: { weight, dy, dx } } as const] : []),
    ]
  },
}

// x (B, C, H, W) → y (B, C, H', W')
export const maxpool2d: Op<'maxpool2d'> = {
  forward: (node) => [
    { kernel: 'maxpool2d.forward', dims: pool2dDims(node), operands: { x: node.inputs[0], y: node.y } },
  ],
  backward: (node, { dy, dinputs: [dx] }) =>
    dx ? [{ kernel: 'maxpool2d.backward', dims: pool2dDims(node), operands: { x: node.inputs[0], dy, dx } }] : [],
}

// x (B, C, H, W) → y (B, C, H', W')
export const avgpool2d: Op<'avgpool2d'> = {
  forward: (node) => [
    { kernel: 'avgpool2d.forward', dims: pool2dDims(node), operands: { x: node.inputs[0], y: node.y } },
  ],
  backward: (node, { dy, dinputs: [dx] }) =>
    dx ? [{ kernel: 'avgpool2d.backward', dims: pool2dDims(node), operands: { dy, dx } }] : [],
}

// x (B, C, H, W) or (B, C, T) → y (B, C)
export const globalavgpool: Op<'globalavgpool'> = {
  forward: (node) => [
    { kernel: 'globalavgpool.forward', dims: globalavgpoolDims(node), operands: { x: node.inputs[0], y: node.y } },
  ],
  backward: (node, { dy, dinputs: [dx] }) =>
    dx ? [{ kernel: 'globalavgpool.backward', dims: globalavgpoolDims(node), operands: { dy, dx } }] : [],
}

function globalavgpoolDims({ inputs: [x] }: Pick<Node, 'inputs'>): GlobalAvgPoolDims {
  const [channels = 1] = x.shape
  return { channels, plane: x.size / channels }
}

type WindowNode = Pick<Node, 'inputs' | 'y'> & { readonly layer: Pool2dAttrs }

function pool2dDims({ inputs: [x], y, layer }: WindowNode): Pool2dDims {
  const { kernel, stride, padding } = layer
  const out = imageSizes(y.shape)
  return { ...imageSizes(x.shape), outHeight: out.height, outWidth: out.width, kernel, stride, padding }
}

function conv2dDims(node: Node<'conv2d'>): Conv2dDims {
  return { ...pool2dDims(node), out: node.layer.out, groups: node.layer.groups }
}
