// Language models for clients, commands and audits: frozen parameters, and what goes on with a text.
export { openReferenceDecoder, openReferenceExecutor } from './cpu/executor.ts'
export { openBaseModel } from './data/base-model.ts'
export { createGpuDecoder } from './gpu/executor.ts'
export { decodes, writingContext } from './graph/decoder-graph.ts'
export type { FrozenSource } from './graph/frozen-source.ts'
export type { TokenDecoder } from './graph/token-decoder.ts'
export { type NextTokens, windowDecoder } from './graph/window-decoder.ts'
