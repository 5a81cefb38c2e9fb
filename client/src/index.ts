// Public face of the client package: what a program needs that trains in a loop of its own, or uses a trained model.
export { lenet5, mlp, type ModelSpec, resnet } from '@starling-grid/model'
export type { OptimizerSpec } from '@starling-grid/shaders'
export type { Batch, Communicator } from '@starling-grid/volunteer'
export { onnxModel } from './export/onnx.ts'
export { pytorchProgram } from './export/pytorch.ts'
export { broadcastParameters, distributedOptimizer, init } from './distributed.ts'
export { type LoopModel, type ModelOptions, openModel, type Optimizer } from './model.ts'
export {
  type NamedNumber,
  openPredictor,
  type Prediction,
  Predictor,
  predictorOf,
  type PredictorOptions,
  type WritingOptions,
} from './predictor.ts'
