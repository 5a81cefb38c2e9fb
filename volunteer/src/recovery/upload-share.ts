// What this member uploads for others' sake within an hour: training needs the rest of what its owner allows.
import type { Clock } from '@starling-grid/protocol'

/** Share of what the owner lets this machine upload in an hour. */
const UPLOAD_SHARE = 0.25
const HOUR_MS = 3_600_000

export class UploadShare {
  readonly #clock: Clock
  readonly #mostBytes: number
  /** bytes in the hour that began at `since`, ms */
  #sent = { since: Number.NEGATIVE_INFINITY, bytes: 0 }

  constructor(clock: Clock, uploadBytesPerHour: number) {
    this.#clock = clock
    this.#mostBytes = UPLOAD_SHARE * uploadBytesPerHour
  }

  /** False: no more of it in this hour. */
  take(bytes: number): boolean {
    const now = this.#clock.now()
    if (now - this.#sent.since > HOUR_MS) this.#sent = { since: now, bytes: 0 }
    if (this.#sent.bytes + bytes > this.#mostBytes) return false
    this.#sent.bytes += bytes
    return true
  }
}
