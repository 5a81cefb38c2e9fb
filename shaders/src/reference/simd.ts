// Whether the exact optimizers run on WebAssembly SIMD here, decided once. Where they cannot, plain TypeScript gives
// the same bits several times slower, which is said once.

import { createSimd, type Simd } from './simd-kernels.ts'

let decided: { readonly simd: Simd | undefined } | undefined

/** The SIMD kernels, or undefined where only plain TypeScript is possible. */
export function simd(): Simd | undefined {
  decided ??= { simd: tryToCreate() }
  return decided.simd
}

function tryToCreate(): Simd | undefined {
  try {
    return createSimd()
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    console.warn(
      `Optimizer steps are computed without WebAssembly SIMD, which is slower and gives the same bits: ${why}`,
    )
    return undefined
  }
}
