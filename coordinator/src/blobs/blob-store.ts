// The seam to where bytes are kept: shards of datasets and stored versions, each named by its SHA-256.
// Implemented in memory, in a folder and in a bucket; all run test/blob-store-suite.ts.
import type { Sha256 } from '@starling-grid/protocol'
import type { Stored } from './stored.ts'

export interface BlobStore {
  /**
   * Resolves when the bytes would survive a power failure; the caller changes none of them before. The same bytes twice
   * are one blob; a damaged one is replaced.
   * @throws GridError('disk-failed')
   */
  put(bytes: Uint8Array): Promise<Sha256>
  /**
   * The bytes under this name, checked against it; undefined when there are none.
   * @throws GridError('shard-corrupt') naming the blob
   */
  get(name: Sha256): Promise<Uint8Array | undefined>
  /**
   * The same to be read piece by piece, checked once in the life of this process. @throws GridError('shard-corrupt')
   * naming the blob
   */
  read(name: Sha256): Promise<Stored | undefined>
  has(name: Sha256): Promise<boolean>
  /** Size without reading, undefined when there is no such blob. */
  stat(name: Sha256): Promise<{ readonly bytes: number } | undefined>
  /** Every blob, in no particular order. */
  list(): AsyncIterable<Sha256>
  /** No error when there is no such blob. */
  delete(name: Sha256): Promise<void>
}
