// The decisions about a run, for the simulation and for tests of the decisions alone.
export * from './async-policy.ts'
export * from './chain-index.ts'
export * from './journal-replay.ts'
export * from './run.ts'
export * from './scheduler.ts'
export * from './state.ts'
export * from './timing.ts'
