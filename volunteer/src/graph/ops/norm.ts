// Normalisations: over a batch, over the last dimension, over groups of channels.

import { imageSizes, type ChannelNormDims, type RowNormDims } from '@starling-grid/shaders'
import { rowDims } from './elementwise.ts'
import {
  type Node,
  type NodeGradients,
  type Op,
  parameter,
  savedBy,
  weightAndBias,
  weightAndBiasGradients,
} from './op.ts'

// x (…, columns), weight, bias (columns,) → y (…, columns)
export const layernorm: Op<'layernorm'> = {
  forward: (node) => [
    {
      kernel: 'layernorm.forward',
      dims: rowNormDims(node),
      operands: { x: node.inputs[0], y: node.y, ...weightAndBias(node), ...meanAndInverse(node) },
    },
  ],
  backward(node, gradients) {
    const {
      inputs: [x],
    } = node
    const {
      dy,
      dinputs: [dx],
    } = gradients
    const [dims, kept] = [rowNormDims(node), meanAndInverse(node)]
    return [
      {
        kernel: 'layernorm.parameterGradient',
        dims,
        operands: { x, dy, ...kept, ...weightAndBiasGradients(gradients) },
      },
      ...(dx
        ? [
            {
              kernel: 'layernorm.inputGradient',
              dims,
              operands: { x, weight: parameter(node, 'weight'), dy, ...kept, dx },
            } as const,
          ]
        : []),
    ]
  },
  saved: ({ inputs: [x] }) => ({ mean: { shape: rowsOf(x.shape) }, inverse: { shape: rowsOf(x.shape) } }),
}

// x (…, columns), weight (columns,) → y (…, columns)
export const rmsnorm: Op<'rmsnorm'> = {
  forward: (node) => [
    {
      kernel: 'rmsnorm.forward',
      dims: rowNormDims(node),
      operands: { x: node.inputs[0], y: node.y, weight: parameter(node, 'weight'), inverse: savedBy(node, 'inverse') },
    },
  ],
  backward(node, gradients) {
    const {
      inputs: [x],
    } = node
    const {
      dy,
      dinputs: [dx],
    } = gradients
    const [dims, inverse, { dweight }] = [
      rowNormDims(node),
      savedBy(node, 'inverse'),
      weightAndBiasGradients(gradients),
    ]
    return [
      { kernel: 'rmsnorm.parameterGradient', dims, operands: { x, dy, inverse, dweight } },
      ...(dx
        ? [
            {
              kernel: 'rmsnorm.inputGradient',
              dims,
              operands: { x, weight: parameter(node, 'weight'), dy, inverse, dx },
            } as const,
          ]
        : []),
    ]
  },
  saved: ({ inputs: [x], layer: { size } }) => ({ inverse: { shape: rowsOf(x.shape, size) } }),
}

// x (C, H, W), weight, bias (C,) → y (C, H, W)
export const groupnorm: Op<'groupnorm'> = {
  forward: (node) => [{ kernel: 'groupnorm.forward', dims: groupnormDims(node), operands: forwardOperands(node) }],
  backward: (node, gradients) => [
    { kernel: 'groupnorm.backward', dims: groupnormDims(node), operands: backwardOperands(node, gradients) },
  ],
  saved: ({ layer: { groups } }) => ({ mean: { shape: [groups] }, inverse: { shape: [groups] } }),
}

// x (C, H, W), weight, bias, running mean and variance (C,) → y (C, H, W)
export const batchnorm2d: Op<'batchnorm2d'> = {
  forward: (node) => [{ kernel: 'batchnorm2d.forward', dims: batchnormDims(node), operands: forwardOperands(node) }],
  backward(node, gradients) {
    const { channels, plane, eps } = batchnormDims(node)
    const [dmean, dvariance] = [gradientOf(gradients, 'runningMean'), gradientOf(gradients, 'runningVariance')]
    return [
      { kernel: 'batchnorm2d.backward', dims: batchnormDims(node), operands: backwardOperands(node, gradients) },
      {
        kernel: 'batchnorm2d.statistics',
        dims: { channels, plane, eps, targets: node.targetsPerSample },
        operands: { ...meanAndInverse(node), dmean, dvariance },
      },
    ]
  },
  evaluate: (node) => [
    {
      kernel: 'batchnorm2d.evaluate',
      dims: batchnormDims(node),
      operands: {
        x: node.inputs[0],
        y: node.y,
        weight: parameter(node, 'weight'),
        bias: parameter(node, 'bias'),
        mean: parameter(node, 'runningMean'),
        variance: parameter(node, 'runningVariance'),
      },
    },
  ],
  saved: ({ inputs: [x] }) => {
    const { channels } = imageSizes(x.shape)
    return { mean: { shape: [channels], shared: true }, inverse: { shape: [channels], shared: true } }
  },
  mixesSamples: true,
}

function meanAndInverse(node: Pick<Node, 'place' | 'parameters' | 'saved'>) {
  return { mean: savedBy(node, 'mean'), inverse: savedBy(node, 'inverse') }
}

type ChannelNormNode = Node<'groupnorm'> | Node<'batchnorm2d'>

function forwardOperands(node: ChannelNormNode) {
  return {
    x: node.inputs[0],
    y: node.y,
    weight: parameter(node, 'weight'),
    bias: parameter(node, 'bias'),
    ...meanAndInverse(node),
  }
}

function backwardOperands(node: ChannelNormNode, gradients: NodeGradients) {
  const {
    dy,
    dinputs: [dx],
  } = gradients
  return {
    x: node.inputs[0],
    weight: parameter(node, 'weight'),
    dy,
    ...meanAndInverse(node),
    ...(dx ? { dx } : {}),
    dweight: gradientOf(gradients, 'weight'),
    dbias: gradientOf(gradients, 'bias'),
  }
}

function gradientOf({ dparameters }: NodeGradients, role: string) {
  const found = dparameters[role]
  if (!found) throw new Error(`internal: a norm without a gradient for its ${role}`)
  return found
}

function rowNormDims({ inputs, layer }: Node<'layernorm'> | Node<'rmsnorm'>): RowNormDims {
  const size = layer.type === 'rmsnorm' ? layer.size : undefined
  if (size === undefined) return { ...rowDims({ inputs }), eps: layer.eps }
  return { rows: inputs[0].size / size, columns: size, eps: layer.eps }
}

/** Each row by itself; a row may have several runs that are normalised by themselves. */
function rowsOf(shape: readonly number[], size?: number): readonly number[] {
  const leading = shape.slice(0, -1)
  return size === undefined ? leading : [...leading, (shape.at(-1) ?? size) / size]
}

function batchnormDims({ inputs: [x], layer: { eps } }: Node<'batchnorm2d'>): ChannelNormDims {
  const { channels, height, width } = imageSizes(x.shape)
  return { channels, plane: height * width, groupChannels: 1, eps }
}

function groupnormDims({ inputs: [x], layer: { eps, groups } }: Node<'groupnorm'>): ChannelNormDims {
  const { channels, height, width } = imageSizes(x.shape)
  return { channels, plane: height * width, groupChannels: channels / groups, eps }
}
