// Public face of the coordinator package: start it inside another process, a command's or a test's.
export { type Coordinator, createCoordinator } from './net/server.ts'
export type { MetricsReaders } from './api/metrics.ts'
export { FolderOwner } from './folder-owner.ts'
export { dryRun } from './jobs/dry-run.ts'
export { encodingsOf } from './jobs/rounds.ts'
export type { Job } from './jobs/jobs.ts'
export {
  copyStorage,
  type CopyCounts,
  type OpenStorage,
  openStorage,
  STATE_FILE,
  type StoragePlaces,
} from './storage.ts'
export type { Log, LogEntry, LogLevel } from './log-entry.ts'
export { volunteersWanted } from './metrics/wanted.ts'
export { RELAY_GIGABYTES } from './net/relay-quota.ts'
export { type OwnerToken, ownerToken, tokenIn } from './owner-token.ts'
