// Behaviour suites that every implementation of a seam runs.
export * from './communicator-suite.ts'
export * from './executor-suite.ts'
export * from './far-end.ts'
export * from './kernel-graph.ts'
export * from './peer-link-suite.ts'
export { GpuEncoding } from './gpu-encoding.ts'
