// Shards in the browser's Cache Storage, by content. The browser may drop them or refuse space: then they are fetched
// again. Bounded, whatever a coordinator offers: what was kept first goes first.
import type { Sha256 } from '@starling-grid/protocol'
import type { ShardCache } from '@starling-grid/volunteer'

const CACHE_NAME = 'starling-shards'
/** bytes that the browser shall still have free for this site */
const FREE_BYTES = 2e8

/** `mostBytes`: of all shards */
export async function openShardCache(mostBytes: number): Promise<ShardCache> {
  // Some private windows have no storage at all; training works without.
  const cache = await caches.open(CACHE_NAME).catch(() => undefined)
  return {
    async get(name: Sha256): Promise<Uint8Array | undefined> {
      const found = await cache?.match(keyOf(name)).catch(() => undefined)
      return found === undefined ? undefined : new Uint8Array(await found.arrayBuffer())
    },
    async put(name: Sha256, bytes: Uint8Array): Promise<void> {
      if (cache === undefined) return
      // Only a full disk or a revoked permission fails here, and a cache may forget.
      await makeRoom(cache, bytes.byteLength, mostBytes)
        .then((room) => (room ? cache.put(keyOf(name), new Response(new Uint8Array(bytes))) : undefined))
        .catch(() => undefined)
    },
  }
}

/** False: the browser has too little left for it. */
async function makeRoom(cache: Cache, bytes: number, mostBytes: number): Promise<boolean> {
  const fits = async (): Promise<boolean> => {
    // Where a browser does not estimate, its own limit holds: put() fails, and that is no harm.
    const { usage = 0, quota = Number.POSITIVE_INFINITY } = (await globalThis.navigator?.storage?.estimate()) ?? {}
    return usage + bytes <= Math.min(mostBytes, quota - FREE_BYTES)
  }
  if (await fits()) return true
  // In the order in which they came (Cache.keys); a browser frees what was deleted in its own time.
  const kept = await cache.keys()
  for (const request of kept.slice(0, Math.ceil(kept.length / 4))) await cache.delete(request)
  return fits()
}

/** A name that no route of the coordinator answers: the cache is ours alone. */
function keyOf(name: Sha256): string {
  return `/cached-shard/${name}`
}
