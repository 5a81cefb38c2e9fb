// Which shards of the data members fetch for their blocks: each keeps what it has.
import { blockIndex, type BlockId, type MemberId } from '@starling-grid/protocol'
import type { FetchedShards, Setting } from './setting.ts'

/** Of a grant: blocks of one shard that are computed after each other. */
export interface ShardWork {
  readonly blocks: number
  readonly shard: number
}

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

  has(member: MemberId, shard: number): boolean {
    return this.#kept.get(member)?.has(shard) === true
  }

  fetched(member: MemberId, shard: number): void {
    this.#kept.set(member, (this.#kept.get(member) ?? new Set()).add(shard))
  }

  /** What the member computes, shard by shard. */
  granted(leases: readonly { readonly block: BlockId }[]): ShardWork[] {
    const shardBlocks = this.#shardBlocks
    if (shardBlocks === undefined) return [{ blocks: leases.length, shard: 0 }]
    const work: { shard: number; blocks: number }[] = []
    const shards = new Set<number>()
    for (const { block } of leases) {
      const shard = Math.floor(blockIndex(block) / shardBlocks)
      shards.add(shard)
      const last = work.at(-1)
      if (last?.shard === shard) last.blocks++
      else work.push({ shard, blocks: 1 })
    }
    this.#grants++
    this.#ofGrants += shards.size
    return work
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
