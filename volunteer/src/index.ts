// Public face of the volunteer package.
export * from './collective/peer-link.ts'
export * from './graph/executor.ts'
export * from './host.ts'
export * from './volunteer.ts'
export * from './collective/channel-link.ts'
export * from './collective/memory-link.ts'
export * from './collective/ring-reduce.ts'
export * from './collective/schedule.ts'
