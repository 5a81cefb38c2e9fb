// When a link needs another connection: packets get lost on the way, so SCTP carries a share that loss and round trip
// set, whatever the line could (Mathis et al. 1997). Then frames wait in SCTP, while WebRTC's own packets, which do
// not, find no queue before the line. Pure: times are given.

/** What WebRTC's own packets took on the way there and back: ICE sends one every two seconds (RFC 7675). */
export interface PathSample {
  /** of the newest, ms */
  readonly ms: number
  /** how many came back so far */
  readonly count: number
}

/** A line this short has no need: one connection carries 4 MB/s at 5 ms, of which one packet in 200 gets lost. */
const NEAR_MS = 15
/** Round trips of a full window before a sample counts: SCTP needs them to find its rate. */
const ROUNDS = 10
/** ms between questions: a sample is no older when it is seen */
const ASK_MS = 250
/** Frames that wait in SCTP: one is there in part while its packets leave. */
const HELD_FRAMES = 1.25
/** Times the shortest way, from which there is a queue: by Wi-Fi alone they are late now and then. */
const QUEUED = 1.5
/** Samples in a row that show this. */
const SAMPLES = 2
/** ms until it is tried again where no connection could be added */
const PAUSE_MS = 60_000

export class FurtherSubflows {
  /** the window is full since then, at every receipt */
  #fullSince = Number.POSITIVE_INFINITY
  #askedAt = 0
  /** one of them is under way */
  #isAsking = false
  #count = 0
  #shortestMs = Number.POSITIVE_INFINITY
  #found = 0
  #pausedUntil = 0

  /** At a receipt. True: ask for a sample now, and say what it was. */
  noted(wasFull: boolean, now: number): boolean {
    if (!wasFull) this.#fullSince = Number.POSITIVE_INFINITY
    else this.#fullSince = Math.min(this.#fullSince, now)
    const isDue = wasFull && !this.#isAsking && now - this.#askedAt >= ASK_MS && now >= this.#pausedUntil
    this.#isAsking ||= isDue
    return isDue
  }

  /** `framesHeld`: by SCTP, if its packets take as long. True: add another connection, and say `added` or `failed`. */
  measured(sample: PathSample | undefined, framesHeld: number, now: number): boolean {
    const askedBefore = this.#askedAt
    this.#askedAt = now
    this.#isAsking = false
    if (sample === undefined || sample.count === this.#count) return false
    this.#count = sample.count
    this.#shortestMs = Math.min(this.#shortestMs, sample.ms)
    if (askedBefore - this.#fullSince < ROUNDS * this.#shortestMs) return false
    const isHeld = framesHeld > HELD_FRAMES && sample.ms < QUEUED * this.#shortestMs
    this.#found = isHeld ? this.#found + 1 : 0
    if (this.#found < SAMPLES || this.#shortestMs < NEAR_MS) return false
    this.#pausedUntil = Number.POSITIVE_INFINITY
    return true
  }

  added(now: number): void {
    this.#pausedUntil = now
    this.#found = 0
  }

  failed(now: number): void {
    this.#pausedUntil = now + PAUSE_MS
    this.#found = 0
  }
}
