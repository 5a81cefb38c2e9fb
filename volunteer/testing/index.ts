// Behaviour suites that every implementation of a seam runs, and what tests and benchmarks put in the place of real
// lines.
export * from './communicator-suite.ts'
export * from './executor-suite.ts'
export * from './far-end.ts'
export * from './form.ts'
export * from './kernel-graph.ts'
export * from './peer-link-suite.ts'
export * from './slow-link.ts'
export * from './take-blocks.ts'
export { GpuEncoding } from './gpu-encoding.ts'
