// WebAssembly's kernels, by themselves: a page that computes on a GPU does not load them.
export { hasRelaxedSimd, wasmCode } from './code.ts'
export { PAGE_BYTES } from './module.ts'
export type { WasmPass } from './pass.ts'
export { wasmRecipe } from './specs.ts'
