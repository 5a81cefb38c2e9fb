// What computes on the processor, by itself: pages load it where they need it.
export type { WasmThreads } from './crew.ts'
export { createWasmDecoder, createWasmExecutor, createWasmRunner, planWasm, wasmAdapter } from './executor.ts'
export { type FasterOptions, knownMeasure, type ExecutorTimes, measuredText, measureExecutors } from './faster.ts'
