// Public face of the volunteer package.
export * from './collective/peer-link.ts'
export * from './graph/executor.ts'
