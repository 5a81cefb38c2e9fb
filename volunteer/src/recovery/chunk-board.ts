// The chunks of one state or reduced gradient while it is fetched: which are here, which are asked for. A chunk is here
// when its SHA-256 is the one that the sources agreed on. A chunk that is here stays, even when its source leaves.
import { chunksOf, FETCH_CHUNK_BYTES, HASH_BYTES, type HashList } from '@starling-grid/protocol'

export interface StateChunk {
  readonly index: number
  /** bytes */
  readonly from: number
  readonly length: number
}

const STATE = { missing: 0, asked: 1, here: 2 } as const

/** The list that most sources gave; of equally common ones the first. */
export function agreedList(lists: readonly HashList[]): HashList | undefined {
  const votes = (list: HashList): number => lists.filter((other) => sameList(list, other)).length
  return lists.reduce<HashList | undefined>(
    (best, list) => (best === undefined || votes(list) > votes(best) ? list : best),
    undefined,
  )
}

export function sameList(a: HashList, b: HashList): boolean {
  return a.total === b.total && sameBytes(a.hashes, b.hashes)
}

export class ChunkTracker {
  readonly list: HashList
  readonly bytes: Uint8Array<ArrayBuffer>
  readonly #states: Uint8Array

  constructor(list: HashList) {
    this.list = list
    this.bytes = new Uint8Array(list.total)
    this.#states = new Uint8Array(chunksOf(list.total))
  }

  get done(): boolean {
    return this.#states.every((state) => state === STATE.here)
  }

  /** The first byte that is not here. */
  get firstMissing(): number {
    const index = this.#states.findIndex((state) => state !== STATE.here)
    return index < 0 ? this.list.total : index * FETCH_CHUNK_BYTES
  }

  /** A chunk that was requested from no source; it is asked for from now on. */
  take(): StateChunk | undefined {
    const index = this.#states.indexOf(STATE.missing)
    if (index < 0) return undefined
    this.#states[index] = STATE.asked
    return this.#chunk(index)
  }

  /** It did not come: another source may be asked. */
  giveBack({ index }: StateChunk): void {
    if (this.#states[index] === STATE.asked) this.#states[index] = STATE.missing
  }

  /** Its bytes are in place: true when they are the right ones. */
  async check(chunk: StateChunk): Promise<boolean> {
    const { index, from, length } = chunk
    const right = sameBytes(
      await sha256(this.bytes.subarray(from, from + length)),
      this.list.hashes.subarray(HASH_BYTES * index, HASH_BYTES * (index + 1)),
    )
    if (right) this.#states[index] = STATE.here
    else this.giveBack(chunk)
    return right
  }

  /** After `bytes` from byte `from` on: true when everything is here. */
  async fill(from: number, bytes: Uint8Array): Promise<boolean> {
    if (from + bytes.byteLength !== this.list.total) return false
    this.bytes.set(bytes, from)
    for (let index = 0; index < this.#states.length; index++)
      if (this.#states[index] !== STATE.here) await this.check(this.#chunk(index))
    return this.done
  }

  #chunk(index: number): StateChunk {
    const from = index * FETCH_CHUNK_BYTES
    return { index, from, length: Math.min(FETCH_CHUNK_BYTES, this.list.total - from) }
  }
}

async function sha256(bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytes as BufferSource))
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.byteLength === b.byteLength && a.every((byte, i) => byte === b[i])
}
