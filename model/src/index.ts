// Public face of the model package.
export { IGNORED, isTuned, parseTuned, partName, rowsOf, tunedSpec } from './base-model.ts'
export { floatValues, halves, packRows, readRows, type Storage, storageOf, STORAGES, storeRows } from './base-store.ts'
export { layerShapes, type PlacedLayer } from './expand.ts'
export {
  embeddingTables,
  type GradientForm,
  gradientForm,
  inputTables,
  isSparse,
  readGradient,
  readRowNumbers,
  type RowsByName,
  sparseParts,
  writeGradient,
  writeRowNumbers,
  writeRows,
} from './gradient-body.ts'
export { constantValues, rotaryFrequencies } from './angles.ts'
export { adapterConfig, mergedTensors, publishedConfig, tunedParts } from './adapters.ts'
export { modelHash } from './hash.ts'
export { initialParameters } from './init.ts'
export { parseJob } from './job.ts'
export { metricsOfModel, tallyKind } from './metrics.ts'
export { parseOptimizerSpec } from './optimizer.ts'
export {
  activationBytesPerSample,
  outputShape,
  parameterCount,
  type FixedEntry,
  fixedEntries,
  type ParameterEntry,
  type ParameterLayout,
  parameterLayout,
  targetsPerSample,
} from './param-layout.ts'
export {
  completed,
  decodeVector,
  encodedParts,
  type EncodedVector,
  encodedVectorBytes,
  encodeVector,
  encodingVector,
  type LossyEncoding,
  MAX_PART_NUMBERS,
} from './encoded-vector.ts'
export { parseModelSpec } from './parse.ts'
export { LAYER_DEFINITION, layerSchema, modelSchema } from './model-schema.ts'
export { type ModelFile, readModelFile } from './model-file.ts'
export { fromPublished, publishedShape, toPublished } from './published.ts'
export { randomWords } from './random.ts'
export { type Start, startFrom } from './start.ts'
export type { CausalLmConfig, GptLayer, Loss, ModelSpec, OperatorLayer } from './spec.ts'
export { takesTokens, tokenVocabulary } from './tokens.ts'
export { meanOfStep, nextVersion, outerOptimizer, type UpdateRule } from './update.ts'
export {
  decodeVersionState,
  emptyStates,
  encodeVersionState,
  exportBytes,
  type ExportHeader,
  exportModel,
  initialVersionState,
  maxVersionBytes,
  parameterParts,
  readParameters,
  type VersionContent,
  type VersionForm,
  versionParts,
  type VersionState,
} from './version-state.ts'
export { gpt } from './zoo/gpt.ts'
export { lenet5 } from './zoo/lenet5.ts'
export { mlp } from './zoo/mlp.ts'
export { resnet } from './zoo/resnet.ts'
export { type GradientRun, overRuns, runsOf, writingRuns } from './gradient-runs.ts'
export {
  BLOCK_ELEMENTS,
  partedRun,
  type PushedGradient,
  readingPush,
  readPush,
  summingSquares,
} from './pushed-gradient.ts'
