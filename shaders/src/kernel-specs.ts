// THE TABLE of GPU kernels: family → kernel → recipe. A family is made for a kind of adapter:
// 'register' keeps results in registers and never synchronises, which software adapters want (5 times faster there).
// A second family for GPUs, with tiles in shared memory, goes beside it and may leave out kernels that it does not improve.

import type { KernelCall, KernelDims, KernelName, KernelOperands } from './kernels.ts'
import type { Recipe } from './recipe.ts'
import { attentionBackward, attentionForward } from './recipes/attention.ts'
import { conv2dForward, conv2dInputGradient, conv2dParameterGradient } from './recipes/conv2d.ts'
import { batchnorm2dEvaluate, batchnorm2dStatistics, channelNormBackward, channelNormForward } from './recipes/channel-norm.ts'
import {
  elementwiseBackward, elementwiseBackwardFromInput, elementwiseForward, elementwiseSum, leakyReluBackward, leakyReluForward,
} from './recipes/elementwise.ts'
import { flashAttentionBackward, flashAttentionForward } from './recipes/flash-attention.ts'
import { linearForward, linearInputGradient, linearParameterGradient } from './recipes/linear.ts'
import { bceWithLogitsLoss, crossEntropyLoss, mseLoss } from './recipes/losses.ts'
import { adamwUpdate, sgdUpdate, sumOfSquaresSum } from './recipes/optimizers.ts'
import { avgpool2dBackward, avgpool2dForward, maxpool2dBackward, maxpool2dForward } from './recipes/pool2d.ts'
import { concatBackward, concatForward } from './recipes/concat.ts'
import { dropoutForward } from './recipes/dropout.ts'
import { globalavgpoolBackward, globalavgpoolForward } from './recipes/globalavgpool.ts'
import { layernormForward, rmsnormForward, rowNormInputGradient, rowNormParameterGradient } from './recipes/row-norm.ts'
import { embeddingForward, embeddingParameterGradient, positionsForward, positionsParameterGradient } from './recipes/sequence.ts'
import { softmaxBackward, softmaxForward } from './recipes/softmax.ts'

export type KernelFamily = 'register'

type MakeRecipe<K extends KernelName> = (dims: KernelDims<K>, capacity: number, operands: KernelOperands<K, unknown>) => Recipe

export const KERNEL_SPECS: { readonly [F in KernelFamily]: { readonly [K in KernelName]: MakeRecipe<K> } } = {
  register: {
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
    'concat.forward': concatForward,
    'concat.backward': concatBackward,
    'dropout.forward': dropoutForward,
    'add.forward': elementwiseSum,
    'relu.forward': elementwiseForward('relu'),
    'relu.backward': elementwiseBackward('relu'),
    'tanh.forward': elementwiseForward('tanh'),
    'tanh.backward': elementwiseBackward('tanh'),
    'sigmoid.forward': elementwiseForward('sigmoid'),
    'sigmoid.backward': elementwiseBackward('sigmoid'),
    'leaky_relu.forward': leakyReluForward,
    'leaky_relu.backward': leakyReluBackward,
    'gelu.forward': elementwiseForward('gelu'),
    'gelu.backward': elementwiseBackwardFromInput('gelu'),
    'gelu_tanh.forward': elementwiseForward('gelu-tanh'),
    'gelu_tanh.backward': elementwiseBackwardFromInput('gelu-tanh'),
    'silu.forward': elementwiseForward('silu'),
    'silu.backward': elementwiseBackwardFromInput('silu'),
    'softmax.forward': softmaxForward,
    'softmax.backward': softmaxBackward,
    'layernorm.forward': layernormForward,
    'layernorm.inputGradient': rowNormInputGradient,
    'layernorm.parameterGradient': rowNormParameterGradient,
    'rmsnorm.forward': rmsnormForward,
    'rmsnorm.inputGradient': rowNormInputGradient,
    'rmsnorm.parameterGradient': rowNormParameterGradient,
    'groupnorm.forward': channelNormForward('sample'),
    'groupnorm.backward': channelNormBackward('sample'),
    'batchnorm2d.forward': channelNormForward('batch'),
    'batchnorm2d.backward': channelNormBackward('batch'),
    'batchnorm2d.evaluate': batchnorm2dEvaluate,
    'batchnorm2d.statistics': batchnorm2dStatistics,
    'embedding.forward': embeddingForward,
    'embedding.parameterGradient': embeddingParameterGradient,
    'positions.forward': positionsForward,
    'positions.parameterGradient': positionsParameterGradient,
    'attention.forward': attentionForward,
    'attention.backward': attentionBackward,
    'flash_attention.forward': flashAttentionForward,
    'flash_attention.backward': flashAttentionBackward,
    'cross_entropy.loss': crossEntropyLoss,
    'mse.loss': mseLoss,
    'bce_with_logits.loss': bceWithLogitsLoss,
    'sgd.update': sgdUpdate,
    'adamw.update': adamwUpdate,
    'sum_of_squares.sum': sumOfSquaresSum,
  },
}

/** How to run `call` for up to `capacity` samples. */
export function recipeFor(family: KernelFamily, call: KernelCall<unknown>, capacity: number): Recipe {
  // The table pairs each kernel with its own dims, which the compiler cannot follow through the union of calls.
  const make = KERNEL_SPECS[family][call.kernel] as (dims: unknown, capacity: number, operands: unknown) => Recipe
  return make(call.dims, capacity, call.operands)
}
