// Several devices of one machine as one executor: for hosts that have several, and what their threads say.
export type { BatchSums, EarlyRanges } from './graph/executor.ts'
export { type JoinableExecutor, mirroredExecutor, type MirroredOptions } from './graph/mirrored-executor.ts'
export { backoffMs } from './retry.ts'
