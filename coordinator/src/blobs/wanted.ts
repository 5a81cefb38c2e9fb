// Shards that many volunteers want at once, in memory: every newcomer fetches the same ones. From a file or a bucket
// each of them would be read anew, by threads of their own. The rest is read where it is kept.
import type { Readable } from 'node:stream'
import type { Sha256 } from '@starling-grid/protocol'
import type { BlobStore } from './blob-store.ts'
import { type Stored, storedInMemory } from './stored.ts'

/** Bytes of all that is kept: some forty shards. */
export const WANTED_BYTES = 64 * 1024 * 1024

interface WantedBlob {
  readonly bytes: number
  readonly stored: Promise<Stored | undefined>
  /** that read it now, or wait for it: it stays meanwhile, so that slow readers hold no more than all may have */
  readers: number
}

export class WantedBlobs {
  readonly #blobs: Pick<BlobStore, 'read'>
  readonly #limit: number
  /** the one that was wanted last comes last */
  readonly #kept = new Map<Sha256, WantedBlob>()
  #bytes = 0

  constructor(blobs: Pick<BlobStore, 'read'>, limit = WANTED_BYTES) {
    this.#blobs = blobs
    this.#limit = limit
  }

  /** `bytes`: its size. As BlobStore.read(). @throws GridError 'shard-corrupt' */
  async read(name: Sha256, bytes: number): Promise<Stored | undefined> {
    const blob = this.#kept.get(name) ?? this.#keep(name, bytes)
    if (blob === undefined) return this.#blobs.read(name)
    this.#kept.delete(name)
    this.#kept.set(name, blob)
    blob.readers++
    try {
      const stored = await blob.stored
      return stored && { bytes: stored.bytes, open: (first, last) => opened(blob, stored, [first, last]) }
    } finally {
      blob.readers--
    }
  }

  /** Undefined: there is no room, since all that is kept is being read. */
  #keep(name: Sha256, bytes: number): WantedBlob | undefined {
    if (!this.#makeRoom(bytes)) return undefined
    const stored = this.#load(name)
    const blob: WantedBlob = { bytes, stored, readers: 0 }
    this.#bytes += bytes
    const forget = (): void => this.#forget(name, blob)
    void stored.then((found) => (found === undefined ? forget() : undefined), forget)
    return blob
  }

  /** Those go that were not wanted for longest. */
  #makeRoom(bytes: number): boolean {
    for (const [name, blob] of this.#kept) {
      if (this.#bytes + bytes <= this.#limit) break
      if (blob.readers === 0) this.#forget(name, blob)
    }
    return this.#bytes + bytes <= this.#limit
  }

  #forget(name: Sha256, blob: WantedBlob): void {
    if (this.#kept.get(name) !== blob) return
    this.#kept.delete(name)
    this.#bytes -= blob.bytes
  }

  async #load(name: Sha256): Promise<Stored | undefined> {
    const stored = await this.#blobs.read(name)
    if (stored === undefined) return undefined
    const all = new Uint8Array(stored.bytes)
    let at = 0
    for await (const part of stored.open(0, stored.bytes - 1) as AsyncIterable<Uint8Array>) {
      all.set(part, at)
      at += part.byteLength
    }
    return storedInMemory(all)
  }
}

function opened(blob: WantedBlob, stored: Stored, [first, last]: readonly [number, number]): Readable {
  blob.readers++
  return stored.open(first, last).once('close', () => {
    blob.readers--
  })
}
