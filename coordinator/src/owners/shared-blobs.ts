// Coordinators that share jobs share the blobs that these name. A mark in the store of blobs tells whether they do.
import { randomBytes } from 'node:crypto'
import { GridError, type Sha256 } from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import type { StateStore } from '../journal/state-store.ts'

/** Key of the mark's name among the small values. */
const KEY = 'blobs-mark'
const MARK_BYTES = 32

/** @throws GridError 'usage' when others have other blobs, 'disk-failed' */
export async function requireSharedBlobs(
  { store, blobs }: { readonly store: StateStore; readonly blobs: BlobStore },
  hasOthers: boolean,
): Promise<void> {
  const mark = await store.get(KEY)
  if (mark !== undefined && (await blobs.has(mark as Sha256))) return
  if (hasOthers)
    throw new GridError(
      'usage',
      'expected the blobs of the other coordinators of this database, got a store without them; ' +
        'start all of them with the same --blobs, an S3 bucket or a folder that all of them reach',
    )
  await store.put(KEY, await blobs.put(randomBytes(MARK_BYTES)))
}
