// Public face of the shaders package.
export * from './shapes.ts'
export * from './optimizer.ts'
export { sumOfSquares, clipGlobalNorm, meanGradient } from './reference/sum-of-squares.ts'
