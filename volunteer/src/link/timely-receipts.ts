// Receipts in time, for a sender whose SCTP takes a late acknowledgement for a loss (decision 0039). A message carries
// the acknowledgement of all that came before it; otherwise Chromium keeps that of an odd packet for 200 ms.
import type { CancelTimer, Clock } from '@starling-grid/protocol'

/** Bytes of the message that frames follow a rest. No receipt and no frame is as short. */
export const ANNOUNCEMENT_BYTES = 1

/** As much as usrsctp at least takes a round trip to vary. */
const EVERY_MS = 10
/** A frame of 60 KiB takes the first three round trips after a rest. */
const GOES_ON_MS = 1000

export class TimelyReceipts {
  readonly #clock: Clock
  readonly #say: () => void
  #until = 0
  /** a receipt left since the last look */
  #said = false
  #cancel: CancelTimer | undefined

  /** `say` sends a receipt. */
  constructor(clock: Clock, say: () => void) {
    this.#clock = clock
    this.#say = say
  }

  /** Frames follow a rest. */
  announced(): void {
    this.#until = this.#clock.now() + GOES_ON_MS
    this.#cancel ??= this.#clock.every(EVERY_MS, () => this.#look())
  }

  /** A frame came, and perhaps a receipt left for it. */
  came(said: boolean): void {
    if (this.#cancel === undefined) return
    this.#said ||= said
    this.#until = this.#clock.now() + GOES_ON_MS
  }

  stop(): void {
    this.#cancel?.()
    this.#cancel = undefined
  }

  #look(): void {
    if (this.#clock.now() > this.#until) return this.stop()
    if (!this.#said) this.#say()
    this.#said = false
  }
}
