// How many answers or bodies may be on their way at once: in all, and of one member or address. A seat is free again
// when its response is over, however it ended.
import type { FastifyReply } from 'fastify'
import { HttpRefusal } from './errors.ts'

/** seconds that who finds no seat waits */
const RETRY_SECONDS = 1

export class Seats {
  readonly #most: number
  readonly #mostEach: number
  readonly #taken = new Map<string, number>()
  #all = 0

  constructor(most: number, mostEach: number) {
    this.#most = most
    this.#mostEach = mostEach
  }

  /** @throws HttpRefusal 'rate-exceeded' when none is free */
  take(holder: string, reply: FastifyReply): void {
    const held = this.#taken.get(holder) ?? 0
    if (held >= this.#mostEach)
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
    this.#taken.set(holder, held + 1)
    reply.raw.once('close', () => this.#free(holder))
  }

  #free(holder: string): void {
    this.#all--
    const left = (this.#taken.get(holder) ?? 1) - 1
    if (left > 0) this.#taken.set(holder, left)
    else this.#taken.delete(holder)
  }
}
