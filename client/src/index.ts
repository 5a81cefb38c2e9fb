// Public face of the client package: what a program with a training loop of its own needs.
export { lenet5, mlp, type ModelSpec, resnet } from '@starling-grid/model'
export type { OptimizerSpec } from '@starling-grid/shaders'
export type { Batch, Communicator } from '@starling-grid/volunteer'
export { broadcastParameters, distributedOptimizer, init } from './distributed.ts'
export { type LoopModel, type ModelOptions, openModel, type Optimizer } from './model.ts'
