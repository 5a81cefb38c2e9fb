// How many answers or bodies may be on their way at once: in all, and of one member or address. A seat is free again
// when its response is over, however it ended.
import type { FastifyReply } from 'fastify'
import { KeyedCounts } from './counts.ts'
import { HttpRefusal } from './errors.ts'

/** seconds that who finds no seat waits */
const RETRY_SECONDS = 1

export class Seats {
  readonly #most: number
  readonly #mostEach: number
  readonly #taken = new KeyedCounts()
  #all = 0

  constructor(max: number, mostEach: number) {
    this.#most = max
    this.#mostEach = mostEach
  }

  /** @throws HttpRefusal 'rate-exceeded' when none is free */
  take(holder: string, reply: FastifyReply): void {
    if (this.#taken.of(holder) >= this.#mostEach)
      throw new HttpRefusal(
        429,
        'rate-exceeded',
        `expected at most ${this.#mostEach} at a time, got one more; ask again when it is done`,
        RETRY_SECONDS,
      )
    if (this.#all >= this.#most)
      throw new HttpRefusal(
        429,
        'rate-exceeded',
        `expected fewer than ${this.#most} requests at a time, got one more; ask again in a moment`,
        RETRY_SECONDS,
      )
    this.#all++
    this.#taken.add(holder)
    reply.raw.once('close', () => this.#free(holder))
  }

  #free(holder: string): void {
    this.#all--
    this.#taken.remove(holder)
  }
}
