// The table of operators that a model is expanded into: type → its rule. Adding an operator is adding a row here, an op
// in the volunteer's graph and kernels. Blocks that consist of several operators are in expand.ts.

import type { OperatorLayer } from '../spec.ts'
import { add, concat, flatten, linear, swiglu } from './dense.ts'
import { activation, dropout, leakyRelu, scale } from './elementwise.ts'
import { batchnorm2d, groupnorm, layernorm, rmsnorm } from './norm.ts'
import type { LayerRule } from './rule.ts'
import { attention, embedding, positions, rotary } from './sequence.ts'
import { classToken, firstToken, transpose, upsample } from './tokens.ts'
import { conv2d, globalavgpool, pool2d } from './window.ts'

export type OperatorType = OperatorLayer['type']

export const LAYERS: { readonly [T in OperatorType]: LayerRule<Extract<OperatorLayer, { type: T }>> } = {
  linear,
  conv2d,
  flatten,
  globalavgpool,
  dropout,
  batchnorm2d,
  layernorm,
  rmsnorm,
  groupnorm,
  embedding,
  positions,
  rotary,
  transpose,
  class_token: classToken,
  first_token: firstToken,
  upsample,
  attention,
  swiglu,
  scale,
  add,
  concat,
  maxpool2d: pool2d('maxpool2d'),
  avgpool2d: pool2d('avgpool2d'),
  relu: activation('relu'),
  gelu: activation('gelu'),
  gelu_tanh: activation('gelu_tanh'),
  silu: activation('silu'),
  tanh: activation('tanh'),
  sigmoid: activation('sigmoid'),
  softmax: activation('softmax'),
  leaky_relu: leakyRelu,
}

/**
 * The row of this layer. The table pairs each type with its own rule, which the compiler cannot follow through a union.
 */
export function ruleOf({ type }: { readonly type: OperatorType }): LayerRule<OperatorLayer> {
  return LAYERS[type] as unknown as LayerRule<OperatorLayer>
}
