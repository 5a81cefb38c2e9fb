// Plans without a command line, for benchmarks.
export { readCrowd } from './crowd.ts'
export { planJob } from './plan.ts'
