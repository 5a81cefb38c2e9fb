// What joined the dataset of a run, as its journal and its snapshots have it.
import type { ShardRef } from '@starling-grid/protocol'

/** Data that joined the dataset. */
export interface AppendedShards {
  /** the first that trains it */
  readonly epoch: number
  /** of each epoch from then on */
  readonly blocks: number
  /** training shards that were there */
  readonly before: number
  readonly shards: readonly ShardRef[]
}
