// The table of plain references: kernel name → function on Float32Array. Buffers may be longer than the samples need.

import type { KernelCall, KernelDims, KernelName, KernelOperands } from '../kernels.ts'
import { addForward } from './add.ts'
import { attentionBackward, attentionForward, flashAttentionBackward, flashAttentionForward } from './attention.ts'
import { avgpool2dBackward, avgpool2dForward } from './avgpool2d.ts'
import { bceWithLogitsLoss } from './bce-with-logits.ts'
import { cachedAttentionForward } from './cached-attention.ts'
import {
  batchnorm2dBackward,
  batchnorm2dEvaluate,
  batchnorm2dForward,
  batchnorm2dStatistics,
  groupnormBackward,
  groupnormForward,
} from './channel-norm.ts'
import { concatBackward, concatForward } from './concat.ts'
import { conv2dForward, conv2dInputGradient, conv2dParameterGradient } from './conv2d.ts'
import { crossEntropyGradient, crossEntropyJoin, crossEntropyLook, crossEntropyLoss } from './cross-entropy.ts'
import { dropoutForward } from './dropout.ts'
import { embeddingForward, embeddingParameterGradient } from './embedding.ts'
import { geluTanhBackward, geluTanhForward } from './gelu-tanh.ts'
import { geluBackward, geluForward } from './gelu.ts'
import { globalavgpoolBackward, globalavgpoolForward } from './globalavgpool.ts'
import { leakyReluBackward, leakyReluForward } from './leaky-relu.ts'
import { linearForward, linearInputGradient, linearParameterGradient } from './linear.ts'
import { maxpool2dBackward, maxpool2dForward } from './maxpool2d.ts'
import { mseLoss } from './mse.ts'
import { positionsForward, positionsParameterGradient } from './positions.ts'
import { reluBackward, reluForward } from './relu.ts'
import { rotaryBackward, rotaryForward } from './rotary.ts'
import { layernormForward, rmsnormForward, rowNormInputGradient, rowNormParameterGradient } from './row-norm.ts'
import { scaleForward } from './scale.ts'
import { sigmoidBackward, sigmoidForward } from './sigmoid.ts'
import { siluBackward, siluForward } from './silu.ts'
import { softmaxBackward, softmaxForward } from './softmax.ts'
import { swigluForward, swigluGateGradient, swigluValueGradient } from './swiglu.ts'
import { tanhBackward, tanhForward } from './tanh.ts'
import { classTokenForward, classTokenParameterGradient, firstTokenBackward, transposeForward } from './tokens.ts'
import { unpackForward, unpackRows } from './unpack.ts'
import { upsampleBackward, upsampleForward } from './upsample.ts'

type Reference<K extends KernelName> = (
  dims: KernelDims<K>,
  samples: number,
  operands: KernelOperands<K, Float32Array, Int32Array>,
) => void

export const REFERENCE_KERNELS: { readonly [K in KernelName]: Reference<K> } = {
  'linear.forward': linearForward,
  'linear.inputGradient': linearInputGradient,
  'linear.parameterGradient': linearParameterGradient,
  'conv2d.forward': conv2dForward,
  'conv2d.inputGradient': conv2dInputGradient,
  'conv2d.parameterGradient': conv2dParameterGradient,
  'maxpool2d.forward': maxpool2dForward,
  'maxpool2d.backward': maxpool2dBackward,
  'avgpool2d.forward': avgpool2dForward,
  'avgpool2d.backward': avgpool2dBackward,
  'globalavgpool.forward': globalavgpoolForward,
  'globalavgpool.backward': globalavgpoolBackward,
  'transpose.forward': transposeForward,
  'class_token.forward': classTokenForward,
  'class_token.parameterGradient': classTokenParameterGradient,
  'first_token.backward': firstTokenBackward,
  'upsample.forward': upsampleForward,
  'upsample.backward': upsampleBackward,
  'concat.forward': concatForward,
  'concat.backward': concatBackward,
  'dropout.forward': dropoutForward,
  'add.forward': addForward,
  'scale.forward': scaleForward,
  'swiglu.forward': swigluForward,
  'swiglu.gateGradient': swigluGateGradient,
  'swiglu.valueGradient': swigluValueGradient,
  'relu.forward': reluForward,
  'relu.backward': reluBackward,
  'tanh.forward': tanhForward,
  'tanh.backward': tanhBackward,
  'sigmoid.forward': sigmoidForward,
  'sigmoid.backward': sigmoidBackward,
  'leaky_relu.forward': leakyReluForward,
  'leaky_relu.backward': leakyReluBackward,
  'gelu.forward': geluForward,
  'gelu.backward': geluBackward,
  'gelu_tanh.forward': geluTanhForward,
  'gelu_tanh.backward': geluTanhBackward,
  'silu.forward': siluForward,
  'silu.backward': siluBackward,
  'softmax.forward': softmaxForward,
  'softmax.backward': softmaxBackward,
  'embedding.forward': embeddingForward,
  'embedding.parameterGradient': embeddingParameterGradient,
  'unpack.forward': unpackForward,
  'unpack.rows': unpackRows,
  'positions.forward': positionsForward,
  'positions.parameterGradient': positionsParameterGradient,
  'rotary.forward': rotaryForward,
  'rotary.backward': rotaryBackward,
  'attention.forward': attentionForward,
  'attention.backward': attentionBackward,
  'cached_attention.forward': cachedAttentionForward,
  'flash_attention.forward': flashAttentionForward,
  'flash_attention.backward': flashAttentionBackward,
  'layernorm.forward': layernormForward,
  'layernorm.inputGradient': rowNormInputGradient,
  'layernorm.parameterGradient': rowNormParameterGradient,
  'rmsnorm.forward': rmsnormForward,
  'rmsnorm.inputGradient': rowNormInputGradient,
  'rmsnorm.parameterGradient': rowNormParameterGradient,
  'groupnorm.forward': groupnormForward,
  'groupnorm.backward': groupnormBackward,
  'batchnorm2d.forward': batchnorm2dForward,
  'batchnorm2d.backward': batchnorm2dBackward,
  'batchnorm2d.evaluate': batchnorm2dEvaluate,
  'batchnorm2d.statistics': batchnorm2dStatistics,
  'cross_entropy.loss': crossEntropyLoss,
  'cross_entropy.look': crossEntropyLook,
  'cross_entropy.join': crossEntropyJoin,
  'cross_entropy.gradient': crossEntropyGradient,
  'mse.loss': mseLoss,
  'bce_with_logits.loss': bceWithLogitsLoss,
}

/** Runs one call whose operands are arrays. */
export function runReference(call: KernelCall<Float32Array | Int32Array>, samples: number): void {
  // The map pairs each kernel with its own operands, which the compiler cannot follow through the union of calls.
  const run = REFERENCE_KERNELS[call.kernel] as (dims: unknown, samples: number, operands: unknown) => void
  run(call.dims, samples, call.operands)
}
