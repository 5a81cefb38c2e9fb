// Public face of the shaders package.
export * from './shapes.ts'
export * from './optimizer.ts'
export { sumOfSquares, clipGlobalNorm, meanGradient } from './reference/sum-of-squares.ts'
export * from './kernels.ts'
export { REFERENCE_KERNELS, runReference } from './reference/index.ts'
