// Frames that wait for one link. Frames of the ring go first. A newcomer's state is bulk: it is sent only when little
// else is on its way on any link. So a step of the ring waits for a few of its chunks at most.
import { type Clock, type Frame, FramePacker, type FrameType } from '@starling-grid/protocol'
import type { PeerLink } from './peer-link.ts'

/** Frames that others wait for without haste: no step depends on them. */
const BULK: ReadonlySet<FrameType> = new Set(['chunk', 'hashes'])
/** Bytes under way up to which the next bulk frame leaves: two of them, 60 ms of a link of 2 MB/s. */
const BULK_WATER_BYTES = 128 * 1024
/** ms between looks at what is under way: a link has no event for that. 128 KiB in each of them are 25 MB/s */
const LOOK_MS = 5
/**
 * ms between bulk frames while other links carry frames of the ring: 1 MB/s, so that a busy ring starves no receiver
 */
const TRICKLE_MS = 60

export class FrameQueue {
  readonly #link: PeerLink
  readonly #clock: Clock
  /** one is enough: a link has copied the bytes of one frame before the next is packed */
  readonly #packer = new FramePacker()
  readonly #ring: Frame[] = []
  readonly #bulk: Frame[] = []
  readonly #othersBusy: () => boolean
  #sending = false
  #bulkAt = 0
  bytesSent = 0

  /** `othersBusy`: frames of the ring wait on other links, which share the line to the network */
  constructor(link: PeerLink, clock: Clock, othersBusy: () => boolean = () => false) {
    this.#link = link
    this.#clock = clock
    this.#othersBusy = othersBusy
  }

  /** Frames of the ring wait here, or lie in the link beyond what bulk may put there. */
  get busy(): boolean {
    return this.#ring.length > 0 || this.#link.bufferedBytes > 2 * BULK_WATER_BYTES
  }

  add(frame: Frame): void {
    const queue = BULK.has(frame.type) ? this.#bulk : this.#ring
    queue.push(frame)
    if (!this.#sending) void this.#drain()
  }

  clear(): void {
    this.#ring.length = 0
    this.#bulk.length = 0
  }

  async #drain(): Promise<void> {
    this.#sending = true
    try {
      while (this.#ring.length + this.#bulk.length > 0) {
        const frame = this.#ring.shift() ?? this.#nextBulk()
        if (frame === undefined) await this.#clock.sleep(LOOK_MS)
        else await this.#send(frame)
      }
    } catch {
      this.clear() // the link's onClose reports the loss
    } finally {
      this.#sending = false
    }
  }

  #nextBulk(): Frame | undefined {
    const now = this.#clock.now()
    if (this.#link.bufferedBytes > BULK_WATER_BYTES || (now - this.#bulkAt < TRICKLE_MS && this.#othersBusy()))
      return undefined
    this.#bulkAt = now
    return this.#bulk.shift()
  }

  async #send(frame: Frame): Promise<void> {
    const bytes = this.#packer.pack(frame)
    this.bytesSent += bytes.byteLength
    await this.#link.send(bytes)
  }
}
