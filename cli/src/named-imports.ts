// What `starling dataset` and `starling model` have in common: imports by name in a coordinator's data folder, shown
// and deleted beside a coordinator that runs on the same folder, or without one.
import { jobsThatUse } from '@starling-grid/coordinator/datasets'
import { GridError, type Sha256 } from '@starling-grid/protocol'
import type { Command } from 'commander'

const DATA_DIR = 'starling-data'

export interface FolderFlags {
  readonly dataDir: string
  readonly json?: boolean
}

export function withFolder(command: Command): Command {
  return command
    .option('--data-dir <folder>', "the coordinator's data folder", DATA_DIR)
    .option('--json', 'one JSON value on stdout')
    .exitOverride()
}

export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`)
}

export interface DeletedImport {
  readonly name: string
  /** `dataset that no job trains on`: for people */
  readonly free: string
  /** blobs that it needs */
  readonly blobs: readonly Sha256[]
  readonly catalog: { delete(name: string, isUsed: (blob: Sha256) => boolean): Promise<unknown> }
}

/** @throws GridError 'usage' while a job needs it */
export async function deleteImport(
  { name, free, blobs, catalog }: DeletedImport,
  { dataDir, json }: FolderFlags,
): Promise<void> {
  const { unfinished, shards } = await jobsThatUse(blobs, dataDir)
  if (unfinished.length > 0)
    throw new GridError(
      'usage',
      `expected a ${free}, got ${name}, which ${unfinished.join(', ')} has; stop the job first`,
    )
  await catalog.delete(name, (blob) => shards.has(blob))
  if (json === true) return printJson({ deleted: name })
  console.log(`deleted ${name}`)
}
