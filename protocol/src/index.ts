// Public face of the protocol package.
export * from './errors.ts'
export * from './frame.ts'
export * from './ids.ts'
export * from './limits.ts'
export * from './safetensors.ts'
