// Public face of the coordinator package: start it inside another process, for tests and the demo.
export { type Coordinator, type CoordinatorOptions, createCoordinator } from './net/server.ts'
