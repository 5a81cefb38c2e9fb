// The coordinator's own copy of a shard that a member could not read: read and hashed again, one look at a time.
import {
  type BlockId,
  blockIndex,
  type BlockRange,
  describeError,
  isGridError,
  type Sha256,
} from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import type { CoordinatorClock } from '../clock.ts'
import type { Job } from '../jobs/jobs.ts'
import type { RunInput } from '../run/state.ts'

/** ms for which a look is believed: members that report the same shard cost one read */
const BELIEVED_MS = 5000

export interface ShardCheckParts {
  readonly clock: Pick<CoordinatorClock, 'awake'>
  readonly job: Pick<Job, 'training' | 'validation'>
  readonly blobs: BlobStore
  feed(input: Extract<RunInput, { type: 'shard-checked' }>): void
}

export class ShardCheck {
  readonly #parts: ShardCheckParts
  readonly #looked = new Map<Sha256, number>()

  constructor(parts: ShardCheckParts) {
    this.#parts = parts
  }

  /** Feeds what it finds of each shard that holds one of these blocks. */
  async check(blocks: readonly BlockId[]): Promise<void> {
    const { training, validation } = this.#parts.job
    for (const block of blocks) {
      const split = block.startsWith('v:') ? 'validation' : 'training'
      const ranges = split === 'validation' ? validation : training
      const range = ranges.at(blockIndex(block))
      if (range !== undefined) await this.#look(range.shard.sha256, split, ranges)
    }
  }

  async #look(file: Sha256, split: 'training' | 'validation', ranges: Iterable<BlockRange>): Promise<void> {
    if (this.#parts.clock.awake() - (this.#looked.get(file) ?? Number.NEGATIVE_INFINITY) < BELIEVED_MS) return
    this.#looked.set(file, this.#parts.clock.awake())
    const indexes = [...ranges].flatMap(({ shard }, index) => (shard.sha256 === file ? [index] : []))
    const problem = await this.#problemOf(file)
    if (problem !== 'unknown') this.#parts.feed({ type: 'shard-checked', split, indexes, file, problem })
  }

  /** 'unknown': the disk did not answer now, which says nothing of the file. */
  async #problemOf(file: Sha256): Promise<string | undefined> {
    try {
      const bytes = await this.#parts.blobs.get(file)
      return bytes === undefined ? `shard ${file} is gone from the data folder` : undefined
    } catch (error) {
      return isGridError(error) && error.code === 'shard-corrupt' ? describeError(error) : 'unknown'
    }
  }
}
