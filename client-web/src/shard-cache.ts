// Shards in the browser's Cache Storage, by content. The browser may drop them or refuse space: then they are fetched again.
import type { Sha256 } from '@starling-grid/protocol'
import type { ShardCache } from '@starling-grid/volunteer'

const CACHE_NAME = 'starling-shards'

export async function openShardCache(): Promise<ShardCache> {
  // Some private windows have no storage at all; training works without.
  const cache = await caches.open(CACHE_NAME).catch(() => undefined)
  return {
    async get(name: Sha256): Promise<Uint8Array | undefined> {
      const found = await cache?.match(keyOf(name)).catch(() => undefined)
      return found === undefined ? undefined : new Uint8Array(await found.arrayBuffer())
    },
    async put(name: Sha256, bytes: Uint8Array): Promise<void> {
      // Only a full disk or a revoked permission fails here, and a cache may forget.
      await cache?.put(keyOf(name), new Response(new Uint8Array(bytes))).catch(() => undefined)
    },
  }
}

/** A name that no route of the coordinator answers: the cache is ours alone. */
function keyOf(name: Sha256): string {
  return `/cached-shard/${name}`
}
