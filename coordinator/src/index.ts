// Public face of the coordinator package: start it inside another process, a command's or a test's.
export { DEFAULT_HOST, DEFAULT_PORT, type Coordinator, createCoordinator } from './net/server.ts'
export { RELAY_GIGABYTES } from './net/relay-quota.ts'
export { keepSecret, requireOwn } from './own-modes.ts'
export { type OwnerToken, ownerToken } from './owner-token.ts'
