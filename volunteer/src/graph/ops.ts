// THE TABLE: op → shape rule, forward kernel, backward rule. Adding an operator is adding a row here,
// a kernel with its reference in the shaders package, and a golden case.

import {
  conv2dShape, flattenShape, imageSizes, lastSize, linearShape, pool2dShape,
  type Conv2dAttrs, type Conv2dDims, type KernelCall, type LinearDims, type Pool2dAttrs, type Pool2dDims, type Shape,
} from '@starling-grid/shaders'
import type { Tensor } from './tensor.ts'

/** Attributes of each op, as layers carry them. */
export interface OpAttrs {
  linear: { readonly out: number }
  conv2d: Conv2dAttrs & { readonly out: number }
  maxpool2d: Pool2dAttrs
  avgpool2d: Pool2dAttrs
  relu: object
  tanh: object
  sigmoid: object
  flatten: object
}

export type OpName = keyof OpAttrs

/** One op applied to tensors. */
export interface Node<O extends OpName = OpName> {
  readonly op: O
  readonly attrs: OpAttrs[O]
  readonly x: Tensor
  readonly weight?: Tensor
  readonly bias?: Tensor
  readonly y: Tensor
}

/** What backward starts from and where it writes. `dx` is missing where nobody needs it: at the model's input. */
export interface NodeGradients {
  readonly dy: Tensor
  readonly dx?: Tensor
  readonly dweight?: Tensor
  readonly dbias?: Tensor
}

export interface Op<O extends OpName> {
  shape(attrs: OpAttrs[O], x: Shape): Shape
  forward(node: Node<O>): KernelCall<Tensor>[]
  backward(node: Node<O>, gradients: NodeGradients): KernelCall<Tensor>[]
  /** true when y is x under another shape: no kernel runs, and dx is dy under another shape */
  readonly view?: true
}

// x (…, in), weight (out, in), bias (out,) → y (…, out)
const linear: Op<'linear'> = {
  shape: (attrs, x) => linearShape(x, attrs.out),
  forward: node => [{ kernel: 'linear.forward', dims: linearDims(node), operands: { x: node.x, y: node.y, ...parametersOf(node) } }],
  backward(node, gradients) {
    const dims = linearDims(node)
    const { weight } = parametersOf(node)
    const { dy, dx } = gradients
    return [
      { kernel: 'linear.parameterGradient', dims, operands: { x: node.x, dy, ...parameterGradientsOf(gradients) } },
      ...(dx ? [{ kernel: 'linear.inputGradient', dims, operands: { weight, dy, dx } } as const] : []),
    ]
  },
}

// x (B, C, H, W), weight (O, C/g, K, K), bias (O,) → y (B, O, H', W')
const conv2d: Op<'conv2d'> = {
  shape: (attrs, x) => conv2dShape(x, attrs.out, attrs),
  forward: node => [{ kernel: 'conv2d.forward', dims: conv2dDims(node), operands: { x: node.x, y: node.y, ...parametersOf(node) } }],
  backward(node, gradients) {
    const dims = conv2dDims(node)
    const { weight } = parametersOf(node)
    const { dy, dx } = gradients
    return [
      { kernel: 'conv2d.parameterGradient', dims, operands: { x: node.x, dy, ...parameterGradientsOf(gradients) } },
      ...(dx ? [{ kernel: 'conv2d.inputGradient', dims, operands: { weight, dy, dx } } as const] : []),
    ]
  },
}

// x (B, C, H, W) → y (B, C, H', W')
const maxpool2d: Op<'maxpool2d'> = {
  shape: (attrs, x) => pool2dShape(x, attrs),
  forward: node => [{ kernel: 'maxpool2d.forward', dims: pool2dDims(node), operands: { x: node.x, y: node.y } }],
  backward: (node, { dy, dx }) => (dx ? [{ kernel: 'maxpool2d.backward', dims: pool2dDims(node), operands: { x: node.x, dy, dx } }] : []),
}

// x (B, C, H, W) → y (B, C, H', W')
const avgpool2d: Op<'avgpool2d'> = {
  shape: (attrs, x) => pool2dShape(x, attrs),
  forward: node => [{ kernel: 'avgpool2d.forward', dims: pool2dDims(node), operands: { x: node.x, y: node.y } }],
  backward: (node, { dy, dx }) => (dx ? [{ kernel: 'avgpool2d.backward', dims: pool2dDims(node), operands: { dy, dx } }] : []),
}

type ElementwiseOp = 'relu' | 'tanh' | 'sigmoid'

// x (…) → y (…)
function elementwise(op: ElementwiseOp): Op<ElementwiseOp> {
  const forward: `${ElementwiseOp}.forward` = `${op}.forward`
  const backward: `${ElementwiseOp}.backward` = `${op}.backward`
  return {
    shape: (_, x) => x,
    forward: ({ x, y }) => [{ kernel: forward, dims: { size: x.size }, operands: { x, y } }],
    backward: ({ y }, { dy, dx }) => (dx ? [{ kernel: backward, dims: { size: y.size }, operands: { y, dy, dx } }] : []),
  }
}

// x (…) → y (elements,)
const flatten: Op<'flatten'> = { shape: (_, x) => flattenShape(x), forward: () => [], backward: () => [], view: true }

export const OPS: { readonly [O in OpName]: Op<O> } = {
  linear, conv2d, maxpool2d, avgpool2d, flatten,
  relu: elementwise('relu'), tanh: elementwise('tanh'), sigmoid: elementwise('sigmoid'),
}

/** The row of an op. The table pairs each op with its own rule, which the compiler cannot follow through a union. */
export function opOf(op: OpName): Op<OpName> {
  return OPS[op] as unknown as Op<OpName>
}

function linearDims({ x, y }: Node): LinearDims {
  const inputs = lastSize(x.shape)
  return { rows: x.size / inputs, in: inputs, out: lastSize(y.shape) }
}

function pool2dDims({ x, y, attrs }: Node<'maxpool2d' | 'avgpool2d' | 'conv2d'>): Pool2dDims {
  const { kernel, stride, padding } = attrs
  const out = imageSizes(y.shape)
  return { ...imageSizes(x.shape), outHeight: out.height, outWidth: out.width, kernel, stride, padding }
}

function conv2dDims(node: Node<'conv2d'>): Conv2dDims {
  return { ...pool2dDims(node), out: node.attrs.out, groups: node.attrs.groups }
}

function parametersOf({ op, weight, bias }: Node): { weight: Tensor; bias?: Tensor } {
  if (!weight) throw new Error(`internal: ${op} without a weight`)
  return bias ? { weight, bias } : { weight }
}

function parameterGradientsOf({ dweight, dbias }: NodeGradients): { dweight: Tensor; dbias?: Tensor } {
  if (!dweight) throw new Error('internal: a weight without a gradient')
  return dbias ? { dweight, dbias } : { dweight }
}
