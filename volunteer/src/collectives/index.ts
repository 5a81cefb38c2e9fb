// Public face of the collectives: what programs use to reduce and move numbers among ranks (docs/COLLECTIVES.md).
export type { AllReduceOptions } from './all-reduce.ts'
export {
  type AlgorithmChoice,
  CHUNK_BYTES,
  chooseAlgorithm,
  type LinkQuality,
  type AlgorithmQuestion,
} from './choose-algorithm.ts'
export {
  Communicator,
  type CommunicatorOptions,
  openCommunicator,
  type ReduceOptions,
  type RootOptions,
} from './communicator.ts'
export type { Rounding } from '@starling-grid/protocol/floats'
export {
  type Matrix,
  type PowerSgdShape,
  type PowerSgdState,
  squareShape,
  startPowerSgd,
} from '../codec/encode-power-sgd.ts'
export { type Encoding, encodedBytes, type Feedback, startFeedback, swapped } from '../codec/encoding.ts'
export type { AlgorithmOptions, CallOptions } from './group-runner.ts'
export { type Mesh, networkMesh } from './mesh.ts'
export { type Algorithm, algorithmsOf, type Collective } from './moves.ts'
export type { Numbers, ReduceOp } from '../codec/numbers.ts'
export type { Movable } from '@starling-grid/protocol/floats'
export { RankFailure } from '../reduce/rank-failure.ts'
