// THE TABLE of WebAssembly kernels: kernel → recipe, beside the WGSL ones (kernel-specs.ts) and under the same names.
import type { KernelCall, KernelName } from '../kernels.ts'
import {
  attentionBackward,
  attentionForward,
  flashAttentionBackward,
  flashAttentionForward,
} from './kernels/attention.ts'
import {
  batchnorm2dEvaluate,
  batchnorm2dStatistics,
  channelNormBackward,
  channelNormForward,
} from './kernels/channel-norm.ts'
import { conv2dForward, conv2dInputGradient, conv2dParameterGradient } from './kernels/conv2d.ts'
import {
  activationBackward,
  activationBackwardFromInput,
  activationForward,
  addForward,
  concatBackward,
  concatForward,
  dropoutForward,
  embeddingForward,
  embeddingParameterGradient,
  leakyReluBackward,
  leakyReluForward,
  positionsForward,
  positionsParameterGradient,
} from './kernels/elementwise.ts'
import { crossEntropyGradient, crossEntropyJoin, crossEntropyLook } from './kernels/entropy-pieces.ts'
import {
  cachedAttentionForward,
  rotaryBackward,
  rotaryForward,
  scaleForward,
  swigluForward,
  swigluGateGradient,
  swigluValueGradient,
} from './kernels/language.ts'
import { linearForward, linearInputGradient, linearParameterGradient } from './kernels/linear.ts'
import {
  avgpool2dBackward,
  avgpool2dForward,
  globalavgpoolBackward,
  globalavgpoolForward,
  maxpool2dBackward,
  maxpool2dForward,
} from './kernels/pool2d.ts'
import {
  bceWithLogitsLoss,
  crossEntropyLoss,
  layernormForward,
  mseLoss,
  rmsnormForward,
  rowNormInputGradient,
  rowNormParameterGradient,
  softmaxBackward,
  softmaxForward,
} from './kernels/rows.ts'
import {
  classTokenForward,
  classTokenParameterGradient,
  firstTokenBackward,
  transposeForward,
  upsampleBackward,
  upsampleForward,
} from './kernels/tokens.ts'
import { unpackForward, unpackRows } from './kernels/unpack.ts'
import type { WasmKernel, WasmRecipe } from './pass.ts'

export const WASM_KERNELS: { readonly [K in KernelName]: WasmKernel<K> } = {
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
  'relu.forward': activationForward('relu'),
  'relu.backward': activationBackward('relu'),
  'tanh.forward': activationForward('tanh'),
  'tanh.backward': activationBackward('tanh'),
  'sigmoid.forward': activationForward('sigmoid'),
  'sigmoid.backward': activationBackward('sigmoid'),
  'leaky_relu.forward': leakyReluForward,
  'leaky_relu.backward': leakyReluBackward,
  'gelu.forward': activationForward('gelu'),
  'gelu.backward': activationBackwardFromInput('gelu'),
  'gelu_tanh.forward': activationForward('gelu_tanh'),
  'gelu_tanh.backward': activationBackwardFromInput('gelu_tanh'),
  'silu.forward': activationForward('silu'),
  'silu.backward': activationBackwardFromInput('silu'),
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
  'cached_attention.forward': cachedAttentionForward,
  'attention.forward': attentionForward,
  'attention.backward': attentionBackward,
  'flash_attention.forward': flashAttentionForward,
  'flash_attention.backward': flashAttentionBackward,
  'layernorm.forward': layernormForward,
  'layernorm.inputGradient': rowNormInputGradient('layernorm'),
  'layernorm.parameterGradient': rowNormParameterGradient('layernorm'),
  'rmsnorm.forward': rmsnormForward,
  'rmsnorm.inputGradient': rowNormInputGradient('rmsnorm'),
  'rmsnorm.parameterGradient': rowNormParameterGradient('rmsnorm'),
  'groupnorm.forward': channelNormForward('sample'),
  'groupnorm.backward': channelNormBackward('sample'),
  'batchnorm2d.forward': channelNormForward('batch'),
  'batchnorm2d.backward': channelNormBackward('batch'),
  'batchnorm2d.evaluate': batchnorm2dEvaluate,
  'batchnorm2d.statistics': batchnorm2dStatistics,
  'cross_entropy.loss': crossEntropyLoss,
  'cross_entropy.look': crossEntropyLook,
  'cross_entropy.join': crossEntropyJoin,
  'cross_entropy.gradient': crossEntropyGradient,
  'mse.loss': mseLoss,
  'bce_with_logits.loss': bceWithLogitsLoss,
}

/** How the call runs on WebAssembly. */
export function wasmRecipe({ kernel, dims, operands }: KernelCall<unknown>, capacity: number): WasmRecipe {
  // The table pairs each kernel with its own dims, which the compiler cannot follow through the union of calls.
  const make = WASM_KERNELS[kernel] as (dims: unknown, capacity: number, operands: unknown) => WasmRecipe
  return make(dims, capacity, operands)
}
