// Public face of the client-node package: what commands, tests and benchmarks need of it.
export { type OpenGpu, openGpu, adapterLabel } from './gpu.ts'
export {
  localGroup,
  startLocalGroup,
  ownSeat,
  joinGroup,
  leaveGroup,
  startLocalSignalling,
  startRanks,
  type LocalSignal,
  type RankProgram,
  type ProcessSeat,
  type RunningRanks,
} from './ranks.ts'
export { EXECUTOR_CHOICES, EXECUTOR_TEXT, type ExecutorWish } from './executor-choice.ts'
export { gpusAmong, type ListedAdapter } from './gpu-wish.ts'
export { HashThread } from './hash-thread.ts'
export { openPeerNetwork } from './rtc-link.ts'
export { ADAPTER_CHOICE, adapterEnvironment } from './runtime/adapter-environment.ts'
export { allAdapters } from './runtime/all-adapters.ts'
export { launchBrowser } from './runtime/browser.ts'
export { exists } from './runtime/cache-folder.ts'
export { findChromium } from './runtime/chromium.ts'
export { prepareProcess } from './runtime/prepare-process.ts'
export { wasmThreads } from './wasm-threads.ts'
