// Which shards of the data members fetch for their blocks: each keeps what it has.
import { blockIndex, type BlockId, type MemberId } from '@starling-grid/protocol'
import type { FetchedShards, Setting } from './setting.ts'

export class DataOfMembers {
  readonly #blocks: number
  readonly #shardBlocks: number | undefined
  readonly #kept = new Map<MemberId, Set<number>>()
  #grants = 0
  #ofGrants = 0

  constructor({ blocks = 0, shardBlocks }: Pick<Setting, 'blocks' | 'shardBlocks'>) {
    this.#blocks = blocks
    this.#shardBlocks = shardBlocks
  }

  granted(member: MemberId, leases: readonly { readonly block: BlockId }[]): void {
    const shardBlocks = this.#shardBlocks
    if (shardBlocks === undefined) return
    const shards = new Set(leases.map(({ block }) => Math.floor(blockIndex(block) / shardBlocks)))
    const kept = this.#kept.get(member) ?? new Set()
    for (const shard of shards) kept.add(shard)
    this.#kept.set(member, kept)
    this.#grants++
    this.#ofGrants += shards.size
  }

  /** Undefined: the setting does not say what lies in a shard, or the coordinator granted none. */
  get shards(): FetchedShards | undefined {
    if (this.#shardBlocks === undefined || this.#grants === 0) return undefined
    const fetched = [...this.#kept.values()].reduce((sum, { size }) => sum + size, 0)
    return {
      ofGrant: this.#ofGrants / this.#grants,
      ofMember: fetched / this.#kept.size,
      all: Math.ceil(this.#blocks / this.#shardBlocks),
    }
  }
}
