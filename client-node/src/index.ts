// Public face of the client-node package.
export * from './gpu.ts'
export * from './runtime/adapter-environment.ts'
export * from './runtime/chromium.ts'
export * from './runtime/prepare-process.ts'
