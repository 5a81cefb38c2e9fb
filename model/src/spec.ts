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
  /** standard deviation of the initial weight; set by blocks that start from a normal distribution, or from zeros */
  readonly deviation?: number
  /** its parameters are given and stay as they are; set by blocks that are tuned with adapters */
  readonly frozen?: true
  /** published files hold the weight as (in, out) */
  readonly transposed?: true
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

/** x (C, H, W) or (C, T) → (C,), the mean of each channel */
export interface GlobalAvgPoolLayer {
  readonly type: 'globalavgpool'
}

/** softmax works over the last dimension */
export type ActivationType = 'relu' | 'gelu' | 'gelu_tanh' | 'silu' | 'tanh' | 'sigmoid' | 'softmax'

export interface ActivationLayer<T extends ActivationType = ActivationType> {
  readonly type: T
}

/** x times a number */
export interface ScaleLayer {
  readonly type: 'scale'
  readonly factor: number
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
  readonly frozen?: true
}

/** over the last dimension, or over each run of `size` in it, without mean and shift */
export interface RmsNormLayer {
  readonly type: 'rmsnorm'
  readonly name: string
  readonly eps: number
  readonly size?: number
  readonly frozen?: true
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

/** x (C, H, W) → (H · W, C): an image as a sequence of its places; or x (T, C) → (C, T) */
export interface TransposeLayer {
  readonly type: 'transpose'
}

/** x (T, C) → (T + 1, C): a learned vector before the others */
export interface ClassTokenLayer {
  readonly type: 'class_token'
  readonly name: string
  readonly parameter?: string
  /** its vector has two leading dimensions of 1, as published vision transformers have it */
  readonly leading?: true
}

/** x (T, C) → (C,) */
export interface FirstTokenLayer {
  readonly type: 'first_token'
}

/** x (C, H, W) → (C, scale · H, scale · W): each cell becomes a square of equal ones */
export interface UpsampleLayer {
  readonly type: 'upsample'
  readonly scale: number
}

/** ids (…) → (…, channels) */
export interface EmbeddingLayer {
  readonly type: 'embedding'
  readonly name: string
  readonly vocab: number
  readonly channels: number
  /** full name of its parameter, where it is not `<name>.weight` */
  readonly parameter?: string
  readonly frozen?: true
}

/** x (T, channels) plus one learned vector for each position */
export interface PositionsLayer {
  readonly type: 'positions'
  readonly name: string
  readonly context: number
  readonly parameter?: string
  /** its table has a leading dimension of 1, as published vision transformers have it */
  readonly leading?: true
  readonly frozen?: true
}

/** x (T, 3 · channels): queries, keys and values side by side, each split into heads → (T, channels) */
export interface AttentionLayer {
  readonly type: 'attention'
  readonly heads: number
  readonly causal: boolean
}

/** How fast rotary positions turn, as `rope_scaling` of a published model says. */
export type RopeScaling =
  | { readonly rope_type: 'linear'; readonly factor: number }
  | {
      readonly rope_type: 'llama3'
      readonly factor: number
      readonly low_freq_factor: number
      readonly high_freq_factor: number
      readonly original_max_position_embeddings: number
    }

export interface Rope {
  readonly theta: number
  readonly scaling?: RopeScaling
}

/**
 * Queries (T, heads · head_size), keys and values (T, kv_heads · head_size) → what attention takes, (T, 3 · heads ·
 * head_size). Queries and keys are turned by their positions; each head of keys and values serves several of queries.
 */
export interface RotaryLayer {
  readonly type: 'rotary'
  readonly heads: number
  readonly kv_heads: number
  readonly rope: Rope
  /** an earlier layer of the model has the same angles */
  readonly tied?: true
}

/** silu of the first branch times the second */
export interface SwigluLayer {
  readonly type: 'swiglu'
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
  | TransposeLayer
  | ClassTokenLayer
  | FirstTokenLayer
  | UpsampleLayer
  | RotaryLayer
  | AttentionLayer
  | SwigluLayer
  | ScaleLayer
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

/**
 * Branches that all see x; their outputs are added or joined along the first dimension, or the second is gated by silu
 * of the first.
 */
export interface ParallelLayer {
  readonly type: 'parallel'
  readonly branches: readonly (readonly LayerSpec[])[]
  readonly combine: 'add' | 'concat' | 'swiglu'
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

/** A vision transformer. x (C, H, W) → logits (classes,) */
export interface VitLayer {
  readonly type: 'vit'
  /** edge of the squares that become tokens */
  readonly patch: number
  readonly channels: number
  readonly blocks: number
  readonly heads: number
  /** width of the hidden layer in each block */
  readonly mlp: number
  readonly classes: number
  /** what the head sees: a class token, or the mean over all tokens */
  readonly pool: 'class' | 'mean'
  readonly eps: number
  readonly dropout: number
}

/** A residual network for photographs. x (C, H, W) → logits (classes,) */
export interface ResnetLayer {
  readonly type: 'resnet'
  readonly depth: 18 | 34 | 50 | 101 | 152
  /** of the first stage */
  readonly channels: number
  readonly classes: number
}

export const FAMILIES = ['llama', 'qwen2', 'qwen3', 'gpt2'] as const
/** `model_type` of published language models that this program computes. */
export type Family = (typeof FAMILIES)[number]

/** … and of its attention. */
interface CausalLmAttention {
  readonly num_attention_heads: number
  readonly num_key_value_heads: number
  readonly head_dim: number
  /** absent in gpt2, whose positions are learned */
  readonly rope_theta?: number
  readonly rope_scaling?: RopeScaling
  /** of queries, keys and values */
  readonly attention_bias: boolean
}

/** What a published model's `config.json` says of its form, under its names of the llama family. */
export interface CausalLmConfig extends CausalLmAttention {
  readonly model_type: Family
  readonly vocab_size: number
  readonly hidden_size: number
  readonly num_hidden_layers: number
  readonly intermediate_size: number
  readonly hidden_act: 'silu' | 'gelu' | 'gelu_tanh' | 'relu'
  /** of the norms */
  readonly eps: number
  readonly max_position_embeddings: number
  /** of what attention and the hidden layer end in */
  readonly output_bias: boolean
  readonly mlp_bias: boolean
  readonly tie_word_embeddings: boolean
}

/** Low-rank adapters beside linear layers (Hu et al., 2021): y = W·x + alpha/rank · B·A·dropout(x). W stays. */
export interface Lora {
  readonly rank: number
  readonly alpha: number
  readonly dropout: number
  /** ends of names, such as `q_proj`; `all-linear`: all but the head */
  readonly targets: readonly string[] | 'all-linear'
}

/** A published language model. ids (T,) → logits (T, vocab_size); with `lora` only the adapters learn */
export interface CausalLmLayer {
  readonly type: 'causal_lm'
  readonly config: CausalLmConfig
  readonly lora?: Lora
  /** without adapters: nothing of it learns */
  readonly frozen?: true
}

export type BlockLayer =
  | ResidualLayer
  | ParallelLayer
  | MultiheadAttentionLayer
  | GptLayer
  | VitLayer
  | ResnetLayer
  | CausalLmLayer

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
  /** with frozen parameters: SHA-256 of the manifest of the imported model that holds them */
  readonly base?: string
}
