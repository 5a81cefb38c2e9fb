// Public face of the shaders package.
export * from './shapes.ts'
