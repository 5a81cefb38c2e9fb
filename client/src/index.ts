// Public face of the client package: what a program needs that submits jobs, trains in a loop of its own, or uses a
// trained model.
export { lenet5, mlp, type ModelFile, type ModelSpec, resnet } from '@starling-grid/model'
export type { WritingOptions } from '@starling-grid/model/text'
export { GridError, isGridError, type JobSpec, type RunView } from '@starling-grid/protocol'
export type { OptimizerSpec } from '@starling-grid/shaders'
export type { Batch, Communicator } from '@starling-grid/volunteer'
export type { ConnectionOptions } from './connection.ts'
export { ApiRefusal, CoordinatorApi } from './coordinator-api.ts'
export { onnxModel } from './export/onnx.ts'
export { pytorchProgram } from './export/pytorch.ts'
export { broadcastParameters, distributedOptimizer, init } from './distributed.ts'
export { connect, GridClient } from './grid-client.ts'
export { GridJob } from './grid-job.ts'
export { type LoopModel, type ModelOptions, openModel, type Optimizer } from './model.ts'
export {
  type BaseOfAdapters,
  type NamedNumber,
  openPredictor,
  type Prediction,
  Predictor,
  type PredictorOptions,
} from './predictor.ts'
export type { JobUpdate, WatchOptions } from './watch-run.ts'
