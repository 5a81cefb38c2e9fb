// THE TABLE of GPU kernels: family → kernel → recipe, or variants of it. A family is made for a kind of adapter
// (variants.ts). 'register' has every kernel; the others leave out those that they do not improve.

import type { ChannelNormDims, KernelCall, KernelName, RowDims } from './kernels.ts'
import type { NamedPass, Pass, Recipe } from './recipe.ts'
import { attentionBackward, attentionForward } from './recipes/attention.ts'
import { cachedAttentionForward } from './recipes/cached-attention.ts'
import {
  batchnorm2dEvaluate,
  batchnorm2dStatistics,
  channelNormBackward,
  channelNormForward,
} from './recipes/channel-norm.ts'
import { concatBackward, concatForward } from './recipes/concat.ts'
import {
  CONV2D_FORWARD_SHARED,
  CONV2D_INPUT_GRADIENT_SHARED,
  CONV2D_PARAMETER_GRADIENT_SHARED,
} from './recipes/conv2d-shared.ts'
import {
  CONV2D_FORWARD_SUBGROUP,
  CONV2D_INPUT_GRADIENT_SUBGROUP,
  CONV2D_PARAMETER_GRADIENT_SUBGROUP,
} from './recipes/conv2d-subgroup.ts'
import {
  CONV2D_FORWARD_WINDOWS,
  CONV2D_INPUT_GRADIENT_WINDOWS,
  CONV2D_PARAMETER_GRADIENT_WINDOWS,
} from './recipes/conv2d-windows.ts'
import { CONV2D_FORWARD, CONV2D_INPUT_GRADIENT, CONV2D_PARAMETER_GRADIENT } from './recipes/conv2d.ts'
import { dropoutForward } from './recipes/dropout.ts'
import {
  elementwiseBackward,
  elementwiseBackwardFromInput,
  elementwiseForward,
  elementwiseSum,
  leakyReluBackward,
  leakyReluForward,
  scaleForward,
  swigluForward,
  swigluGateGradient,
  swigluValueGradient,
} from './recipes/elementwise.ts'
import { FLASH_ATTENTION_BACKWARD_SHARED, FLASH_ATTENTION_FORWARD_SHARED } from './recipes/flash-attention-shared.ts'
import { flashAttentionBackward, flashAttentionForward } from './recipes/flash-attention.ts'
import { globalavgpoolBackward, globalavgpoolForward } from './recipes/globalavgpool.ts'
import {
  LINEAR_FORWARD_MATRIX,
  LINEAR_FORWARD_SHARED,
  LINEAR_INPUT_GRADIENT_MATRIX,
  LINEAR_INPUT_GRADIENT_SHARED,
  LINEAR_PARAMETER_GRADIENT_MATRIX,
  LINEAR_PARAMETER_GRADIENT_SHARED,
} from './recipes/linear-shared.ts'
import {
  LINEAR_FORWARD_SUBGROUP,
  LINEAR_INPUT_GRADIENT_SUBGROUP,
  LINEAR_PARAMETER_GRADIENT_SUBGROUP,
} from './recipes/linear-subgroup.ts'
import { LINEAR_FORWARD, LINEAR_INPUT_GRADIENT, LINEAR_PARAMETER_GRADIENT } from './recipes/linear.ts'
import {
  bceWithLogitsLoss,
  crossEntropyGradient,
  crossEntropyJoin,
  crossEntropyLook,
  crossEntropyLoss,
  crossEntropyLossShared,
  mseLoss,
} from './recipes/losses.ts'
import { avgpool2dBackward, avgpool2dForward, maxpool2dBackward, maxpool2dForward } from './recipes/pool2d.ts'
import { rotaryBackward, rotaryForward } from './recipes/rotary.ts'
import { layernormForward, rmsnormForward, rowNormInputGradient, rowNormParameterGradient } from './recipes/row-norm.ts'
import { ownRows, rowVariants, sharedRows } from './recipes/row-sharing.ts'
import {
  embeddingForward,
  embeddingParameterGradient,
  positionsForward,
  positionsParameterGradient,
} from './recipes/sequence.ts'
import { softmaxBackward, softmaxForward } from './recipes/softmax.ts'
import {
  classTokenForward,
  classTokenParameterGradient,
  firstTokenBackward,
  transposeForward,
} from './recipes/tokens.ts'
import { unpackForward, unpackRows } from './recipes/unpack.ts'
import { upsampleBackward, upsampleForward } from './recipes/upsample.ts'
import type { AdapterTraits, KernelEntry, KernelFamily } from './variants.ts'

type KernelTable = {
  readonly register: { readonly [K in KernelName]: KernelEntry<K> }
  readonly subgroup: { readonly [K in KernelName]?: KernelEntry<K> }
  readonly shared: { readonly [K in KernelName]?: KernelEntry<K> }
  readonly matrix: { readonly [K in KernelName]?: KernelEntry<K> }
}

const quads = ({ columns }: RowDims) => columns / 4
const sampledRows = ({ rows }: RowDims, capacity: number) => capacity * rows
const planeQuads = ({ plane }: ChannelNormDims, capacity: number) => (capacity * plane) / 4

export const KERNEL_SPECS: KernelTable = {
  register: {
    'linear.forward': LINEAR_FORWARD,
    'linear.inputGradient': LINEAR_INPUT_GRADIENT,
    'linear.parameterGradient': LINEAR_PARAMETER_GRADIENT,
    'conv2d.forward': CONV2D_FORWARD,
    'conv2d.inputGradient': CONV2D_INPUT_GRADIENT,
    'conv2d.parameterGradient': CONV2D_PARAMETER_GRADIENT,
    'maxpool2d.forward': maxpool2dForward,
    'maxpool2d.backward': maxpool2dBackward,
    'avgpool2d.forward': avgpool2dForward,
    'avgpool2d.backward': avgpool2dBackward,
    'globalavgpool.forward': globalavgpoolForward(ownRows),
    'globalavgpool.backward': globalavgpoolBackward,
    'transpose.forward': transposeForward,
    'class_token.forward': classTokenForward,
    'class_token.parameterGradient': classTokenParameterGradient(ownRows),
    'first_token.backward': firstTokenBackward,
    'upsample.forward': upsampleForward,
    'upsample.backward': upsampleBackward,
    'concat.forward': concatForward,
    'concat.backward': concatBackward,
    'dropout.forward': dropoutForward,
    'add.forward': elementwiseSum,
    'scale.forward': scaleForward,
    'swiglu.forward': swigluForward,
    'swiglu.gateGradient': swigluGateGradient,
    'swiglu.valueGradient': swigluValueGradient,
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
    'softmax.forward': softmaxForward(ownRows),
    'softmax.backward': softmaxBackward(ownRows),
    'embedding.forward': embeddingForward,
    'embedding.parameterGradient': embeddingParameterGradient(ownRows),
    'unpack.forward': unpackForward,
    'unpack.rows': unpackRows,
    'positions.forward': positionsForward,
    'positions.parameterGradient': positionsParameterGradient(ownRows),
    'rotary.forward': rotaryForward,
    'rotary.backward': rotaryBackward,
    'attention.forward': attentionForward,
    'attention.backward': attentionBackward,
    'cached_attention.forward': cachedAttentionForward,
    'flash_attention.forward': flashAttentionForward,
    'flash_attention.backward': flashAttentionBackward,
    'layernorm.forward': layernormForward(ownRows),
    'layernorm.inputGradient': rowNormInputGradient(ownRows),
    'layernorm.parameterGradient': rowNormParameterGradient(ownRows),
    'rmsnorm.forward': rmsnormForward(ownRows),
    'rmsnorm.inputGradient': rowNormInputGradient(ownRows),
    'rmsnorm.parameterGradient': rowNormParameterGradient(ownRows),
    'groupnorm.forward': channelNormForward('sample', ownRows),
    'groupnorm.backward': channelNormBackward('sample', ownRows),
    'batchnorm2d.forward': channelNormForward('batch', ownRows),
    'batchnorm2d.backward': channelNormBackward('batch', ownRows),
    'batchnorm2d.evaluate': batchnorm2dEvaluate,
    'batchnorm2d.statistics': batchnorm2dStatistics,
    'cross_entropy.loss': crossEntropyLoss,
    'cross_entropy.look': crossEntropyLook(ownRows),
    'cross_entropy.join': crossEntropyJoin,
    'cross_entropy.gradient': crossEntropyGradient,
    'mse.loss': mseLoss(ownRows),
    'bce_with_logits.loss': bceWithLogitsLoss(ownRows),
  },
  subgroup: {
    'linear.forward': LINEAR_FORWARD_SUBGROUP,
    'linear.inputGradient': LINEAR_INPUT_GRADIENT_SUBGROUP,
    'linear.parameterGradient': LINEAR_PARAMETER_GRADIENT_SUBGROUP,
    'conv2d.forward': [...CONV2D_FORWARD_SUBGROUP, ...CONV2D_FORWARD_WINDOWS],
    'conv2d.inputGradient': [...CONV2D_INPUT_GRADIENT_SUBGROUP, ...CONV2D_INPUT_GRADIENT_WINDOWS],
    'conv2d.parameterGradient': [...CONV2D_PARAMETER_GRADIENT_SUBGROUP, ...CONV2D_PARAMETER_GRADIENT_WINDOWS],
  },
  shared: {
    'linear.forward': LINEAR_FORWARD_SHARED,
    'linear.inputGradient': LINEAR_INPUT_GRADIENT_SHARED,
    'linear.parameterGradient': LINEAR_PARAMETER_GRADIENT_SHARED,
    'conv2d.forward': CONV2D_FORWARD_SHARED,
    'conv2d.inputGradient': CONV2D_INPUT_GRADIENT_SHARED,
    'conv2d.parameterGradient': CONV2D_PARAMETER_GRADIENT_SHARED,
    'class_token.parameterGradient': rowVariants(classTokenParameterGradient(sharedRows), (_, capacity) => capacity),
    'globalavgpool.forward': rowVariants(globalavgpoolForward(sharedRows), ({ plane }) => plane / 4),
    'softmax.forward': rowVariants(softmaxForward(sharedRows), quads),
    'softmax.backward': rowVariants(softmaxBackward(sharedRows), quads),
    'embedding.parameterGradient': rowVariants(
      embeddingParameterGradient(sharedRows),
      ({ tokens }, capacity) => (capacity * tokens) / 4,
    ),
    'positions.parameterGradient': rowVariants(positionsParameterGradient(sharedRows), (_, capacity) => capacity),
    'layernorm.forward': rowVariants(layernormForward(sharedRows), quads),
    'layernorm.inputGradient': rowVariants(rowNormInputGradient(sharedRows), quads),
    'layernorm.parameterGradient': rowVariants(rowNormParameterGradient(sharedRows), sampledRows),
    'rmsnorm.forward': rowVariants(rmsnormForward(sharedRows), quads),
    'rmsnorm.inputGradient': rowVariants(rowNormInputGradient(sharedRows), quads),
    'rmsnorm.parameterGradient': rowVariants(rowNormParameterGradient(sharedRows), sampledRows),
    'groupnorm.forward': rowVariants(channelNormForward('sample', sharedRows), planeQuads),
    'groupnorm.backward': rowVariants(channelNormBackward('sample', sharedRows), planeQuads),
    'batchnorm2d.forward': rowVariants(channelNormForward('batch', sharedRows), planeQuads),
    'batchnorm2d.backward': rowVariants(channelNormBackward('batch', sharedRows), planeQuads),
    'cross_entropy.loss': rowVariants(crossEntropyLossShared, ({ classes }) => classes / 4),
    'cross_entropy.look': rowVariants(crossEntropyLook(sharedRows), ({ classes }) => classes / 4),
    'mse.loss': rowVariants(mseLoss(sharedRows), ({ size }) => size),
    'bce_with_logits.loss': rowVariants(bceWithLogitsLoss(sharedRows), ({ size }) => size),
    'flash_attention.forward': FLASH_ATTENTION_FORWARD_SHARED,
    'flash_attention.backward': FLASH_ATTENTION_BACKWARD_SHARED,
  },
  matrix: {
    'linear.forward': LINEAR_FORWARD_MATRIX,
    'linear.inputGradient': LINEAR_INPUT_GRADIENT_MATRIX,
    'linear.parameterGradient': LINEAR_PARAMETER_GRADIENT_MATRIX,
  },
}

/** A way to run one call: a variant bound to the call's sizes. */
export interface Candidate<P extends NamedPass = Pass> {
  readonly family: KernelFamily | 'wasm'
  readonly name: string
  /** worth a try at these sizes */
  readonly suits: boolean
  /** share of the arithmetic that makes results: the rest lies past the edges of tiles */
  readonly useful: number
  recipe(capacity: number): Recipe<P>
}

const ONLY = 'only'

/**
 * The ways to run `call` that such an adapter has, its own family first, and in it those first that suit. Never empty.
 */
export function candidatesFor(
  call: KernelCall<unknown>,
  capacity: number,
  traits: AdapterTraits,
): readonly Candidate[] {
  const families: KernelFamily[] = traits.software
    ? ['subgroup', 'register', 'shared']
    : ['matrix', 'shared', 'register']
  const candidates = families
    .flatMap((family) =>
      variantsOf(family, call.kernel).filter(({ fits }) => fits === undefined || fits(traits, call.dims)),
    )
    .map(({ family, name, recipe, suits, cost, useful }) => ({
      family,
      name,
      cost: cost?.(call.dims, capacity, traits) ?? 0,
      useful: useful?.(call.dims, capacity) ?? 1,
      suits: suits === undefined || suits(call.dims, capacity, traits),
      recipe: (samples: number) => recipe(call.dims, samples, call.operands),
    }))
  const suiting = candidates.filter(({ suits }) => suits)
  return [...cheapestFirst(suiting), ...candidates.filter(({ suits }) => !suits)]
}

/** Within each family: which family comes first is said by the kind of adapter. */
function cheapestFirst<C extends { readonly family: KernelFamily; readonly cost: number }>(
  candidates: readonly C[],
): readonly C[] {
  const families = [...new Set(candidates.map(({ family }) => family))]
  return families.flatMap((family) =>
    candidates.filter((other) => other.family === family).sort((a, b) => a.cost - b.cost),
  )
}

/** The table pairs each kernel with its own dims, which the compiler cannot follow through the union of calls. */
interface AnyVariant {
  readonly family: KernelFamily
  readonly name: string
  recipe(dims: unknown, capacity: number, operands: unknown): Recipe
  fits?(traits: AdapterTraits, dims: unknown): boolean
  suits?(dims: unknown, capacity: number, traits: AdapterTraits): boolean
  cost?(dims: unknown, capacity: number, traits: AdapterTraits): number
  useful?(dims: unknown, capacity: number): number
}

/** What sets a variant apart in tables and reports: `register 8×8`. */
export function variantName({ family, name }: Pick<Candidate, 'family' | 'name'>): string {
  return `${family} ${name}`
}

/** The names of all variants of all kernels on adapters. */
export function variantNames(): ReadonlySet<string> {
  const kernels = Object.keys(KERNEL_SPECS.register) as KernelName[]
  const families = Object.keys(KERNEL_SPECS) as KernelFamily[]
  return new Set(families.flatMap((family) => kernels.flatMap((kernel) => variantsOf(family, kernel).map(variantName))))
}

function variantsOf(family: KernelFamily, kernel: KernelName): readonly AnyVariant[] {
  const entry = KERNEL_SPECS[family][kernel] as AnyVariant['recipe'] | readonly AnyVariant[] | undefined
  if (typeof entry === 'function') return [{ family, name: ONLY, recipe: entry }]
  return entry ?? []
}
