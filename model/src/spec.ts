// What a model is: a list of layers with their attributes. Types only; parse.ts makes them from JSON.

import type { Shape } from '@starling-grid/shaders'

/** x (…, in) → (…, out), over every leading dimension */
export interface LinearLayer {
  readonly type: 'linear'
  /** its parameters are `<name>.weight` and `<name>.bias` */
  readonly name: string
  readonly out: number
  readonly bias: boolean
  /** inputs that the author expects; checked when given */
  readonly in?: number
  /** full name of the parameter that is this layer's weight too; set by blocks that tie */
  readonly tied?: string
  /** standard deviation of the initial weight; set by blocks that start from a normal distribution */
  readonly deviation?: number
}

/** x (C, H, W) → (out, H', W') */
export interface Conv2dLayer {
  readonly type: 'conv2d'
  readonly name: string
  readonly out: number
  readonly kernel: number
  readonly stride: number
  readonly padding: number
  readonly groups: number
  readonly bias: boolean
  /** input channels that the author expects; checked when given */
  readonly in?: number
}

export type PoolType = 'maxpool2d' | 'avgpool2d'

/** x (C, H, W) → (C, H', W'); padded cells count as −∞ for the maximum and as 0 for the average */
export interface PoolLayer<T extends PoolType = PoolType> {
  readonly type: T
  readonly kernel: number
  readonly stride: number
  readonly padding: number
}

/** x (C, H, W) → (C,), the mean of each channel */
export interface GlobalAvgPoolLayer {
  readonly type: 'globalavgpool'
}

/** softmax works over the last dimension */
export type ActivationType = 'relu' | 'gelu' | 'gelu_tanh' | 'silu' | 'tanh' | 'sigmoid' | 'softmax'

export interface ActivationLayer<T extends ActivationType = ActivationType> {
  readonly type: T
}

export interface LeakyReluLayer {
  readonly type: 'leaky_relu'
  readonly negative_slope: number
}

/** In training each element is 0 with probability p and otherwise multiplied by 1/(1 − p). */
export interface DropoutLayer {
  readonly type: 'dropout'
  readonly p: number
}

/** x (C, H, W); each channel over the batch and the image in training, by running statistics in evaluation */
export interface BatchNorm2dLayer {
  readonly type: 'batchnorm2d'
  readonly name: string
  readonly eps: number
  readonly momentum: number
}

/** over the last dimension */
export interface LayerNormLayer {
  readonly type: 'layernorm'
  readonly name: string
  readonly eps: number
  readonly bias: boolean
}

/** over the last dimension, without mean and shift */
export interface RmsNormLayer {
  readonly type: 'rmsnorm'
  readonly name: string
  readonly eps: number
}

/** x (C, H, W); over each group of channels with its whole image */
export interface GroupNormLayer {
  readonly type: 'groupnorm'
  readonly name: string
  readonly groups: number
  readonly eps: number
}

/** x (…) → (elements,) */
export interface FlattenLayer {
  readonly type: 'flatten'
}

/** ids (…) → (…, channels) */
export interface EmbeddingLayer {
  readonly type: 'embedding'
  readonly name: string
  readonly vocab: number
  readonly channels: number
  /** full name of its parameter, where it is not `<name>.weight` */
  readonly parameter?: string
}

/** x (T, channels) plus one learned vector for each position */
export interface PositionsLayer {
  readonly type: 'positions'
  readonly name: string
  readonly context: number
  readonly parameter?: string
}

/** x (T, 3 · channels): queries, keys and values side by side, each split into heads → (T, channels) */
export interface AttentionLayer {
  readonly type: 'attention'
  readonly heads: number
  readonly causal: boolean
}

/** sum of all branches */
export interface AddLayer {
  readonly type: 'add'
}

/** branches one after another along the first dimension */
export interface ConcatLayer {
  readonly type: 'concat'
}

/** What a model is expanded into: each has a row in the volunteer's table of operators. */
export type OperatorLayer =
  | LinearLayer
  | Conv2dLayer
  | FlattenLayer
  | GlobalAvgPoolLayer
  | LeakyReluLayer
  | DropoutLayer
  | BatchNorm2dLayer
  | LayerNormLayer
  | RmsNormLayer
  | GroupNormLayer
  | EmbeddingLayer
  | PositionsLayer
  | AttentionLayer
  | AddLayer
  | ConcatLayer
  | PoolLayer<'maxpool2d'>
  | PoolLayer<'avgpool2d'>
  | ActivationLayer<'relu'>
  | ActivationLayer<'gelu'>
  | ActivationLayer<'gelu_tanh'>
  | ActivationLayer<'silu'>
  | ActivationLayer<'tanh'>
  | ActivationLayer<'sigmoid'>
  | ActivationLayer<'softmax'>

/** x + layers(x), or shortcut(x) + layers(x) where the shapes differ */
export interface ResidualLayer {
  readonly type: 'residual'
  readonly layers: readonly LayerSpec[]
  readonly shortcut?: readonly LayerSpec[]
}

/** Branches that all see x; their outputs are added or joined along the first dimension. */
export interface ParallelLayer {
  readonly type: 'parallel'
  readonly branches: readonly (readonly LayerSpec[])[]
  readonly combine: 'add' | 'concat'
}

/** Self-attention with its projections: `<name>.qkv` and `<name>.proj`. x (T, channels) → (T, channels) */
export interface MultiheadAttentionLayer {
  readonly type: 'multihead_attention'
  readonly name: string
  readonly heads: number
  readonly causal: boolean
  readonly bias: boolean
}

export interface GptNames {
  /** full name of the token table; the head's weight too when tied */
  readonly tokens: string
  readonly positions: string
  /** prefix of block i, with `{i}` in it */
  readonly block: string
  readonly final_norm: string
}

/** Sizes of a decoder. */
export interface GptSizes {
  readonly blocks: number
  readonly heads: number
  readonly channels: number
  readonly context: number
  readonly vocab: number
  /** width of the hidden layer in each block */
  readonly mlp: number
}

/** A decoder of GPT-2's form. ids (T,) → logits (T, vocab) */
export interface GptLayer extends GptSizes {
  readonly type: 'gpt'
  readonly activation: 'gelu' | 'gelu_tanh' | 'relu' | 'silu'
  readonly norm: 'layernorm' | 'rmsnorm'
  readonly eps: number
  readonly positions: 'learned'
  readonly attention_bias: boolean
  readonly tied_head: boolean
  readonly dropout: number
  readonly names: GptNames
}

export type BlockLayer = ResidualLayer | ParallelLayer | MultiheadAttentionLayer | GptLayer

/** What an author writes: operators and blocks of them. */
export type LayerSpec = OperatorLayer | BlockLayer

/**
 * `cross_entropy`: softmax over the last dimension against class indices. `mse`: squared error against values.
 * `bce_with_logits`: a sigmoid for each output against values from 0 to 1
 */
export type Loss = 'cross_entropy' | 'mse' | 'bce_with_logits'

export interface ModelSpec {
  readonly name: string
  /** shape of one sample, without the batch dimension */
  readonly input: Shape
  readonly layers: readonly LayerSpec[]
  readonly loss: Loss
  /** cross_entropy: share of the target that is spread evenly over all classes */
  readonly label_smoothing?: number
  /** cross_entropy: targets of this value count for nothing */
  readonly ignore_index?: number
  /** what stored integer inputs are multiplied by before they enter the model: 1/255 for pixels */
  readonly inputScale: number
}
