// Public face of the shaders package.
export { PIECE_STATE } from './kernels.ts'
export { type Candidate, candidatesFor, variantName, variantNames } from './kernel-specs.ts'
export { KERNEL_URLS, type KernelFile } from './kernel-urls.ts'
export type {
  Activation,
  AttentionDims,
  ChannelNormDims,
  ConcatDims,
  Conv2dDims,
  EmbeddingDims,
  GlobalAvgPoolDims,
  InputActivation,
  TokenDims,
  TransposeDims,
  UpsampleDims,
  KernelCall,
  KernelCallOf,
  KernelName,
  LinearDims,
  Pool2dDims,
  RotaryDims,
  RowDims,
  RowNormDims,
} from './kernels.ts'
export {
  applyUpdate,
  createOptimizerState,
  type DecayGroup,
  learningRate,
  type LearningRateSchedule,
  type OptimizerSpec,
  type OptimizerState,
  slotNames,
} from './optimizer.ts'
export { floatOfHalf, NIBBLE_ZERO, packedRow, type PackedStorage, SCALE_GROUP } from './packed.ts'
export { type Binding, filesOf, type NamedPass, type Pass } from './recipe.ts'
export { ENCODE_BLOCK, ENCODE_TABLE_WORDS, encodePasses } from './recipes/encode.ts'
export {
  CHUNK,
  CHUNK_ELEMENTS,
  CHUNK_WORDS,
  deviceStep,
  squaresPass,
  STEP_SCALARS,
  stepPass,
  stepScalars,
} from './recipes/optimizer-passes.ts'
export { runReference } from './reference/index.ts'
export {
  addScaled,
  allFinite,
  clipFactor,
  clipGlobalNorm,
  meanAt,
  meanGradient,
  meanOfSum,
  sumOfSquares,
  asMean,
  type MeanGradient,
} from './reference/sum-of-squares.ts'
export { MATRIX_TILES, matrixTileName } from './recipes/matrix-tiles.ts'
export { serialLoads } from './serial-loads.ts'
export {
  conv2dShape,
  elementCount,
  flattenShape,
  imageSizes,
  lastSize,
  linearShape,
  type Pool2dAttrs,
  pool2dShape,
  type Shape,
} from './shapes.ts'
export { type AdapterTraits, type KernelFamily, PLAIN_TRAITS } from './variants.ts'
export { bindingBytes, boundBindings, type GroupShare, passSource, workgroupGrid, workgroupShare } from './wgsl.ts'
