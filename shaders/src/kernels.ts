// Every kernel by name: its sizes and its operands. This one map types the WGSL recipes (kernel-specs.ts), the plain
// references (reference/) and the graph's calls. None of them can miss a kernel or an operand.

import type { PackedStorage } from './packed.ts'

/** x (samples·rows, in) */
export type LinearDims = { readonly rows: number; readonly in: number; readonly out: number }

/** x (samples, channels, height, width) → y (samples, out, outHeight, outWidth) */
export type Conv2dDims = Pool2dDims & { readonly out: number; readonly groups: number }

/** x (samples, channels, height, width) → y (samples, channels, outHeight, outWidth) */
export type Pool2dDims = {
  readonly channels: number
  readonly height: number
  readonly width: number
  readonly outHeight: number
  readonly outWidth: number
  readonly kernel: number
  readonly stride: number
  readonly padding: number
}

/** x (samples, size) */
export type ElementwiseDims = { readonly size: number }

/** x (samples, size); `node` distinguishes several dropouts of one model, `p` is the share of elements that become 0 */
export type DropoutDims = ElementwiseDims & { readonly node: number; readonly p: number }

/** x (samples, channels, plane) → y (samples, channels) */
export type GlobalAvgPoolDims = { readonly channels: number; readonly plane: number }

/** x (samples, rows, columns) → y (samples, columns, rows) */
export type TransposeDims = { readonly rows: number; readonly columns: number }

/** sequences (samples, size), and a first vector of `token` elements: before them, or in them */
export type TokenDims = ElementwiseDims & { readonly token: number }

/** x (samples, channels, height, width), each cell `scale` times as high and wide */
export type UpsampleDims = {
  readonly channels: number
  readonly height: number
  readonly width: number
  readonly scale: number
}

/** x (samples, size) is the part of y (samples, total) that begins at `offset` */
export type ConcatDims = ElementwiseDims & { readonly offset: number; readonly total: number }

/** x (samples, size); what is below 0 is multiplied by `slope` */
export type LeakyReluDims = ElementwiseDims & { readonly slope: number }

/** x (samples, size), multiplied by `factor` */
export type ScaleDims = ElementwiseDims & { readonly factor: number }

/** x (samples·rows, columns), each row by itself */
export type RowDims = { readonly rows: number; readonly columns: number }

/**
 * logits (samples·rows, classes); `smoothing` of a target is spread over all classes, targets that are `ignored` count
 * for nothing
 */
export type CrossEntropyDims = {
  readonly rows: number
  readonly classes: number
  readonly smoothing?: number
  readonly ignored?: number
}

/** The same of a piece of the classes, which begins at `first`: logits (samples·rows, classes) of `all` */
export type CrossEntropyPieceDims = CrossEntropyDims & { readonly first: number; readonly all: number }

/**
 * Numbers that a row's pieces leave: largest logit, Σ exp(logit − largest), Σ logits, its class, the target's logit.
 */
export const PIECE_STATE = 8

/**
 * ids (samples·tokens,) → y (samples·tokens, channels). `first`: the table is a piece, of the rows from there on; ids
 * outside it are another piece's
 */
export type EmbeddingDims = {
  readonly tokens: number
  readonly vocab: number
  readonly channels: number
  readonly first?: number
}

/** a matrix (rows, columns) that lies packed (packed.ts) */
export type UnpackDims = { readonly rows: number; readonly columns: number; readonly storage: PackedStorage }

/** x (samples, size) with size = T · channels; weight may have more rows than the first T */
export type PositionsDims = { readonly size: number }

/** qkv (samples, length, 3, heads, headSize) → y (samples, length, heads, headSize); causal: query t sees keys 0 … t */
export type AttentionDims = {
  readonly length: number
  readonly heads: number
  readonly headSize: number
  readonly causal: boolean
}

/**
 * x (samples, length, own, headSize) is part `part` (queries, keys, values) of qkv (samples, length, 3, heads,
 * headSize); each of its `own` heads serves heads/own of attention's. `turns`: by the angles of its position
 */
export type RotaryDims = {
  readonly length: number
  readonly heads: number
  readonly own: number
  readonly headSize: number
  readonly part: 0 | 1 | 2
  readonly turns: boolean
  /** rows of the table of angles, where samples have places; absent: length */
  readonly context?: number
}

/**
 * qkv (samples, 3, heads, headSize): each sample a token at its place in a text; cache (context, 2, heads, headSize)
 * has the keys and values of all places before it
 */
export type CachedAttentionDims = { readonly context: number; readonly heads: number; readonly headSize: number }

/** Activations whose derivative can be read off their output. */
export type OutputActivation = 'relu' | 'tanh' | 'sigmoid' | 'leaky_relu'

/** Activations whose derivative needs their input. */
export type InputActivation = 'gelu' | 'gelu_tanh' | 'silu'

/** What a product can apply to its results before it stores them. */
export type Activation = OutputActivation | InputActivation

/**
 * The epilogue of a product, y = activation(preactivation) with preactivation = product + bias + residual, which is
 * stored too where a derivative needs it; made by fusion, absent in graphs as they are built.
 */
export type FinishDims = { readonly activation?: Activation; /** of leaky_relu */ readonly slope?: number }

/**
 * The epilogue of a gradient, dx = dx · derivative(activated): the activation's output, or its input where the
 * derivative needs that; made by fusion too.
 */
export type DerivativeDims = { readonly derivative?: Activation; /** of leaky_relu */ readonly slope?: number }

/** x (samples·rows, columns), each row normalised */
export type RowNormDims = RowDims & { readonly eps: number }

/**
 * x (samples, channels, plane), normalised over one channel of all samples or over `groupChannels` neighbouring ones of
 * a sample
 */
export type ChannelNormDims = {
  readonly channels: number
  readonly plane: number
  readonly groupChannels: number
  readonly eps: number
}

/** mean (channels,) over samples·plane elements each; `targets` of the loss in one sample */
export type StatisticsDims = {
  readonly channels: number
  readonly plane: number
  readonly eps: number
  readonly targets: number
}

type Elementwise<F> = {
  forward: { dims: ElementwiseDims; operands: { x: F; y: F } }
  /** from the output: what relu, tanh and sigmoid need of their input can be read off it */
  backward: { dims: ElementwiseDims; operands: { y: F; dy: F; dx: F } }
}

/** Of an InputActivation. */
type ElementwiseFromInput<F> = {
  forward: Elementwise<F>['forward']
  backward: { dims: ElementwiseDims; operands: { x: F; dy: F; dx: F } }
}

/** mean and inverse are those of each group of channels; inverse = 1/√(variance + eps) */
type ChannelNorm<F> = {
  forward: { dims: ChannelNormDims; operands: { x: F; weight: F; bias: F; y: F; mean: F; inverse: F } }
  backward: {
    dims: ChannelNormDims
    operands: { x: F; weight: F; dy: F; mean: F; inverse: F; dx?: F; dweight: F; dbias: F }
  }
}

/**
 * Kernel → dims and operands, where F stands for a tensor of floats and I for one of integers.
 * Gradients of parameters are ADDED to what the operand holds; every other result overwrites.
 */
export interface Kernels<F, I> {
  // y = activation(x · weightᵀ + bias + residual)
  'linear.forward': {
    dims: LinearDims & FinishDims
    operands: { x: F; weight: F; bias?: F; residual?: F; preactivation?: F; y: F }
  }
  'linear.inputGradient': { dims: LinearDims & DerivativeDims; operands: { weight: F; dy: F; activated?: F; dx: F } }
  'linear.parameterGradient': { dims: LinearDims; operands: { x: F; dy: F; dweight: F; dbias?: F } }
  // weight (out, channels/groups, kernel, kernel)
  'conv2d.forward': {
    dims: Conv2dDims & FinishDims
    operands: { x: F; weight: F; bias?: F; residual?: F; preactivation?: F; y: F }
  }
  'conv2d.inputGradient': { dims: Conv2dDims & DerivativeDims; operands: { weight: F; dy: F; activated?: F; dx: F } }
  'conv2d.parameterGradient': { dims: Conv2dDims; operands: { x: F; dy: F; dweight: F; dbias?: F } }
  'maxpool2d.forward': { dims: Pool2dDims; operands: { x: F; y: F } }
  'maxpool2d.backward': { dims: Pool2dDims & DerivativeDims; operands: { x: F; dy: F; activated?: F; dx: F } }
  'avgpool2d.forward': { dims: Pool2dDims; operands: { x: F; y: F } }
  'avgpool2d.backward': { dims: Pool2dDims & DerivativeDims; operands: { dy: F; activated?: F; dx: F } }
  'globalavgpool.forward': { dims: GlobalAvgPoolDims; operands: { x: F; y: F } }
  'globalavgpool.backward': { dims: GlobalAvgPoolDims; operands: { dy: F; dx: F } }
  // the gradient is the same kernel applied to dy, with rows and columns exchanged
  'transpose.forward': { dims: TransposeDims; operands: { x: F; y: F } }
  // y = weight, then x; the part of dy that is x's is what concat.backward takes
  'class_token.forward': { dims: TokenDims; operands: { x: F; weight: F; y: F } }
  'class_token.parameterGradient': { dims: TokenDims; operands: { dy: F; dweight: F } }
  // dx = dy, then 0
  'first_token.backward': { dims: TokenDims; operands: { dy: F; dx: F } }
  'upsample.forward': { dims: UpsampleDims; operands: { x: F; y: F } }
  'upsample.backward': { dims: UpsampleDims; operands: { dy: F; dx: F } }
  // one call for each input
  'concat.forward': { dims: ConcatDims; operands: { x: F; y: F } }
  'concat.backward': { dims: ConcatDims; operands: { dy: F; dx: F } }
  // y = what is left of x + residual; keys (samples,) any integers; the gradient is the same kernel applied to dy
  'dropout.forward': { dims: DropoutDims; operands: { x: F; keys: I; residual?: F; y: F } }
  // y = a + b
  'add.forward': { dims: ElementwiseDims; operands: { a: F; b: F; y: F } }
  // y = factor · x; the gradient is the same kernel applied to dy
  'scale.forward': { dims: ScaleDims; operands: { x: F; y: F } }
  // y = silu(a) · b
  'swiglu.forward': { dims: ElementwiseDims; operands: { a: F; b: F; y: F } }
  'swiglu.gateGradient': { dims: ElementwiseDims; operands: { a: F; b: F; dy: F; dx: F } }
  'swiglu.valueGradient': { dims: ElementwiseDims; operands: { a: F; dy: F; dx: F } }
  'relu.forward': Elementwise<F>['forward']
  'relu.backward': Elementwise<F>['backward']
  'tanh.forward': Elementwise<F>['forward']
  'tanh.backward': Elementwise<F>['backward']
  'sigmoid.forward': Elementwise<F>['forward']
  'sigmoid.backward': Elementwise<F>['backward']
  'leaky_relu.forward': { dims: LeakyReluDims; operands: { x: F; y: F } }
  'leaky_relu.backward': { dims: LeakyReluDims; operands: { y: F; dy: F; dx: F } }
  'gelu.forward': ElementwiseFromInput<F>['forward']
  'gelu.backward': ElementwiseFromInput<F>['backward']
  'gelu_tanh.forward': ElementwiseFromInput<F>['forward']
  'gelu_tanh.backward': ElementwiseFromInput<F>['backward']
  'silu.forward': ElementwiseFromInput<F>['forward']
  'silu.backward': ElementwiseFromInput<F>['backward']
  'softmax.forward': { dims: RowDims; operands: { x: F; y: F } }
  'softmax.backward': { dims: RowDims; operands: { y: F; dy: F; dx: F } }
  // y = weight[ids]
  'embedding.forward': { dims: EmbeddingDims; operands: { ids: I; weight: F; y: F } }
  'embedding.parameterGradient': { dims: EmbeddingDims; operands: { ids: I; dy: F; dweight: F } }
  // packed (rows, words) → y (rows, columns), whatever the number of samples
  'unpack.forward': { dims: UnpackDims; operands: { packed: I; y: F } }
  // y = packed[ids], of a table (vocab, words)
  'unpack.rows': { dims: EmbeddingDims & Pick<UnpackDims, 'storage'>; operands: { ids: I; packed: I; y: F } }
  // y = x + weight; dx is dy
  'positions.forward': { dims: PositionsDims; operands: { x: F; weight: F; y: F } }
  'positions.parameterGradient': { dims: PositionsDims; operands: { dy: F; dweight: F } }
  // one call for each part; angles (length, headSize): cosines of each position, then sines. places (samples,): each
  // sample is one token at that position, of a table of that many more rows
  'rotary.forward': { dims: RotaryDims; operands: { x: F; angles: F; places?: I; qkv: F } }
  'rotary.backward': { dims: RotaryDims; operands: { dqkv: F; angles: F; dx: F } }
  // probabilities (samples, heads, length, length); above the diagonal of causal attention they are 0 or not written
  'attention.forward': { dims: AttentionDims; operands: { qkv: F; probabilities: F; y: F } }
  'attention.backward': { dims: AttentionDims; operands: { qkv: F; probabilities: F; dy: F; dqkv: F } }
  // places (samples,): where each token stands, below context; its keys and values are written to the cache first
  'cached_attention.forward': { dims: CachedAttentionDims; operands: { qkv: F; places: I; cache: F; y: F } }
  // attention without probabilities, for long sequences; logSums (samples, heads, length) = ln Σ exp(scores)
  'flash_attention.forward': { dims: AttentionDims; operands: { qkv: F; logSums: F; y: F } }
  'flash_attention.backward': { dims: AttentionDims; operands: { qkv: F; y: F; logSums: F; dy: F; dqkv: F } }
  // weight, bias (columns,); mean and inverse = 1/√(variance + eps) of each row are kept for backward
  'layernorm.forward': { dims: RowNormDims; operands: { x: F; weight: F; bias?: F; y: F; mean: F; inverse: F } }
  // dx is the gradient + residual
  'layernorm.inputGradient': {
    dims: RowNormDims
    operands: { x: F; weight: F; dy: F; mean: F; inverse: F; residual?: F; dx: F }
  }
  'layernorm.parameterGradient': {
    dims: RowNormDims
    operands: { x: F; dy: F; mean: F; inverse: F; dweight: F; dbias?: F }
  }
  'rmsnorm.forward': { dims: RowNormDims; operands: { x: F; weight: F; y: F; inverse: F } }
  'rmsnorm.inputGradient': { dims: RowNormDims; operands: { x: F; weight: F; dy: F; inverse: F; residual?: F; dx: F } }
  'rmsnorm.parameterGradient': { dims: RowNormDims; operands: { x: F; dy: F; inverse: F; dweight: F } }
  'groupnorm.forward': ChannelNorm<F>['forward']
  'groupnorm.backward': ChannelNorm<F>['backward']
  'batchnorm2d.forward': ChannelNorm<F>['forward']
  'batchnorm2d.backward': ChannelNorm<F>['backward']
  // mean, variance (channels,) as training left them
  'batchnorm2d.evaluate': { dims: ChannelNormDims; operands: { x: F; weight: F; bias: F; mean: F; variance: F; y: F } }
  // dmean, dvariance (channels,) += samples · targets · what was measured; the variance is the unbiased one
  'batchnorm2d.statistics': { dims: StatisticsDims; operands: { mean: F; inverse: F; dmean: F; dvariance: F } }
  // target (samples·rows,) class indices; loss (samples·rows,); correct (samples·rows,) is 1 where the arg-max is the
  // target; dx is ∂Σloss/∂x
  'cross_entropy.loss': { dims: CrossEntropyDims; operands: { x: F; target: I; loss: F; correct: F; dx: F } }
  // the same piece by piece of the classes: state (samples·rows, PIECE_STATE) of the pieces so far, `before` of those
  // before; what a row's loss follows from; logSums (samples·rows,) = ln Σ exp(logits)
  'cross_entropy.look': { dims: CrossEntropyPieceDims; operands: { logits: F; target: I; before?: F; state: F } }
  'cross_entropy.join': {
    dims: CrossEntropyDims
    operands: { state: F; target: I; loss: F; correct: F; logSums: F }
  }
  'cross_entropy.gradient': { dims: CrossEntropyPieceDims; operands: { logits: F; target: I; logSums: F; dx: F } }
  // loss (samples,) sums the squared errors of a sample; dx is ∂Σloss/∂x
  'mse.loss': { dims: ElementwiseDims; operands: { x: F; target: F; loss: F; dx: F } }
  // loss (samples,); correct (samples,) counts the outputs on the right side of ½; dx is ∂Σloss/∂x
  'bce_with_logits.loss': { dims: ElementwiseDims; operands: { x: F; target: F; loss: F; correct: F; dx: F } }
}

export type KernelName = keyof Kernels<unknown, unknown>
export type KernelDims<K extends KernelName> = Kernels<unknown, unknown>[K]['dims']
export type KernelOperands<K extends KernelName, F, I = F> = Kernels<F, I>[K]['operands']

/** One kernel applied to operands of type T. */
export type KernelCallOf<K extends KernelName, T> = {
  readonly kernel: K
  readonly dims: KernelDims<K>
  readonly operands: KernelOperands<K, T>
}

export type KernelCall<T> = { [K in KernelName]: KernelCallOf<K, T> }[KernelName]
