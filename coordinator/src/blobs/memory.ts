// Blobs in memory, for tests and simulations.
import type { Sha256 } from '@starling-grid/protocol'
import { nameOf, requireIntact, requireName } from './blob-name.ts'
import type { BlobStore } from './blob-store.ts'
import { storedInMemory } from './stored.ts'

/** @param kept what the store holds; given only by those who want to look at it, or damage it */
export function memoryBlobs(kept: Map<Sha256, Uint8Array> = new Map()): BlobStore {
  const lookUp = (name: Sha256) => {
    requireName(name)
    return kept.get(name)
  }
  return {
    async put(bytes) {
      const name = nameOf(bytes)
      kept.set(name, bytes.slice())
      return name
    },
    async get(name) {
      const bytes = lookUp(name)
      if (bytes) requireIntact(name, bytes, 'memory')
      return bytes?.slice()
    },
    async read(name) {
      const bytes = await this.get(name)
      return bytes && storedInMemory(bytes)
    },
    has: async (name) => lookUp(name) !== undefined,
    async stat(name) {
      const found = lookUp(name)
      return found && { bytes: found.byteLength }
    },
    async *list() {
      yield* [...kept.keys()]
    },
    async delete(name) {
      requireName(name)
      kept.delete(name)
    },
  }
}
