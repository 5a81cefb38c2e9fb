// Where a coordinator keeps what must survive it: by default in its data folder, or in a database and a bucket that
// other machines reach.
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { GridError, isGridError, type Sha256 } from '@starling-grid/protocol'
import type { BlobStore } from './blobs/blob-store.ts'
import { openFolderBlobs } from './blobs/folder.ts'
import { openS3Blobs, readS3Url } from './blobs/s3.ts'
import type { PortableState } from './journal/portable.ts'
import { openPostgresState } from './journal/postgres.ts'
import { openSqliteState } from './journal/sqlite.ts'

export interface StoragePlaces {
  readonly dataDir: string
  /** postgres://user@host/database; absent: a file in the data folder */
  readonly state?: string
  /** s3://bucket/prefix, or file:///folder; absent: a folder in the data folder */
  readonly blobs?: string
}

export interface OpenStorage {
  readonly store: PortableState
  readonly blobs: BlobStore
}

/** The journal in a data folder. */
export const STATE_FILE = 'state.db'

/** @throws GridError 'usage', 'folder-unwritable', 'disk-failed' */
export async function openStorage({ dataDir, state, blobs }: StoragePlaces): Promise<OpenStorage> {
  return { blobs: await openBlobs(dataDir, blobs), store: await openState(dataDir, state) }
}

function openBlobs(dataDir: string, url: string | undefined): Promise<BlobStore> {
  if (url === undefined) return openFolderBlobs(join(dataDir, 'blobs'))
  if (url.startsWith('file:')) return openFolderBlobs(folderAt(url))
  return openS3Blobs(readS3Url(url, process.env))
}

/** @throws GridError 'usage' */
function folderAt(url: string): string {
  try {
    return fileURLToPath(url)
  } catch (cause) {
    throw new GridError('usage', `expected file:///folder, got ${url.slice(0, 100)}; name a folder by its whole path`, {
      cause,
    })
  }
}

async function openState(dataDir: string, url: string | undefined): Promise<PortableState> {
  if (url === undefined) return openSqliteState(join(dataDir, STATE_FILE))
  if (/^postgres(ql)?:\/\//.test(url)) return openPostgresState(url)
  throw new GridError(
    'usage',
    `expected postgres://user@host/database, got ${url.replace(/:[^:@/]*@/, ':…@').slice(0, 100)}; correct the address`,
  )
}

export interface CopyCounts {
  readonly jobs: number
  readonly steps: number
  readonly blobs: number
  readonly bytes: number
}

/**
 * Every job, blob and small value, such as tokens, of one storage into another; blobs that are there already stay as
 * they are. A coordinator may go on with the first. So blobs come before the jobs and once more behind them: what a job
 * names was copied before its owner could drop it. @throws GridError 'duplicate' when the other has one of the jobs,
 * 'disk-failed'
 */
export async function copyStorage(
  from: OpenStorage,
  to: OpenStorage,
  onProgress: (counts: CopyCounts) => void = () => undefined,
): Promise<CopyCounts> {
  let counts: CopyCounts = { jobs: 0, steps: 0, blobs: 0, bytes: 0 }
  const counted = (more: Partial<CopyCounts>): void => {
    counts = { ...counts, ...more }
    onProgress(counts)
  }
  const copyBlobs = async (): Promise<void> => {
    for await (const name of from.blobs.list()) {
      const bytes = (await to.blobs.has(name)) ? undefined : await intact(from.blobs, name)
      if (bytes === undefined) continue
      await to.blobs.put(bytes)
      counted({ blobs: counts.blobs + 1, bytes: counts.bytes + bytes.byteLength })
    }
  }
  await copyBlobs()
  for (const job of await from.store.jobs()) {
    const copy = await from.store.copyOf(job)
    await to.store.adopt(copy)
    counted({ jobs: counts.jobs + 1, steps: counts.steps + copy.records.length })
  }
  for (const { key, value } of await from.store.values('')) await to.store.put(key, value)
  await copyBlobs()
  return counts
}

/** Undefined where it is gone or damaged: a run has older checkpoints, and says which file it misses. */
async function intact(blobs: BlobStore, name: Sha256): Promise<Uint8Array | undefined> {
  try {
    return await blobs.get(name)
  } catch (error) {
    if (isGridError(error) && error.code === 'shard-corrupt') return undefined
    throw error
  }
}
