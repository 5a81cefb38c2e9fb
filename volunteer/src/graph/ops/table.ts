// THE TABLE: operator → forward kernels, backward rule. To add an operator, add a row here and in the model's table of
// layers. It needs a kernel with its reference in the shaders package, and a golden case.

import { GridError } from '@starling-grid/protocol'
import { add, concat, flatten, linear, swiglu } from './dense.ts'
import { dropout } from './dropout.ts'
import { fromInput, fromOutput, leakyRelu, scale, softmax } from './elementwise.ts'
import { batchnorm2d, groupnorm, layernorm, rmsnorm } from './norm.ts'
import type { Op, OpName } from './op.ts'
import { attention, embedding, positions, rotary } from './sequence.ts'
import { classToken, firstToken, transpose, upsample } from './tokens.ts'
import { avgpool2d, conv2d, globalavgpool, maxpool2d } from './window.ts'

export const OPS: { readonly [O in OpName]?: Op<O> } = {
  embedding,
  positions,
  rotary,
  transpose,
  class_token: classToken,
  first_token: firstToken,
  upsample,
  attention,
  linear,
  conv2d,
  maxpool2d,
  avgpool2d,
  flatten,
  add,
  swiglu,
  scale,
  relu: fromOutput('relu'),
  tanh: fromOutput('tanh'),
  sigmoid: fromOutput('sigmoid'),
  gelu: fromInput('gelu'),
  gelu_tanh: fromInput('gelu_tanh'),
  silu: fromInput('silu'),
  leaky_relu: leakyRelu,
  softmax,
  layernorm,
  rmsnorm,
  groupnorm,
  batchnorm2d,
  globalavgpool,
  concat,
  dropout,
}

/** The row of an operator. The table pairs each with its own rule, which the compiler cannot follow through a union. */
export function opOf(op: OpName): Op<OpName> {
  const found = OPS[op]
  if (!found)
    throw new GridError('unsupported', `expected an operator of this version, got \`${op}\`; update the volunteer`)
  return found as unknown as Op<OpName>
}
