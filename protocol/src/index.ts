// Public face of the protocol package.
export * from './errors.ts'
