// Whether the exact optimizers run on WebAssembly SIMD here, decided once. Where they cannot, plain TypeScript gives
// the same bits several times slower, which is said once.

import { createSimdRun, type SimdRun } from './simd-kernels.ts'

let decided: { readonly run: SimdRun | undefined } | undefined

/** The SIMD kernels, or undefined where only plain TypeScript is possible. */
export function simd(): SimdRun | undefined {
  decided ??= { run: tryToCreate() }
  return decided.run
}

function tryToCreate(): SimdRun | undefined {
  try {
    return createSimdRun()
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    console.warn(
      `Optimizer steps are computed without WebAssembly SIMD, which is slower and gives the same bits: ${why}`,
    )
    return undefined
  }
}
