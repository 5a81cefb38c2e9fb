// The virtual clock and all that is under way: messages on their lanes, and local work (a computation, a reconnect).
// Which of it happens next is drawn by lot. Independent of coordinators and members.
import type { Dice } from '../world/dice.ts'

/**
 * ms of virtual time that a message may take; time does not pass it. Below T_state and every other time limit of a run.
 */
export const LATENCY_MS = 1200
/** of messages on a shuffled lane: how many arrive a second time */
const DUPLICATES = 0.04
/** of the lanes: how many are slow, and how much rarer their messages are drawn */
const SLOW_LANES = 0.2
const SLOW_WEIGHT = 0.05

export interface Errand {
  /** ms: it happens between these */
  readonly from: number
  readonly by: number
  readonly what: () => string
  readonly act: () => void
}

interface Lane {
  readonly weight: number
  readonly queue: Errand[]
}

export class EventQueue {
  now = 0
  readonly #dice: Dice
  readonly #ordered: boolean
  readonly #lanes = new Map<string, Lane>()
  readonly #tasks: Errand[] = []
  /** ends of links and sockets that carry nothing now */
  readonly #stopped = new Set<string>()

  constructor(dice: Dice, ordered: boolean) {
    this.#dice = dice
    this.#ordered = ordered
  }

  /** A message: in order on its lane, or shuffled and now and then repeated. */
  send(lane: string, what: () => string, act: () => void): void {
    this.#lane(lane).queue.push({ from: this.now, by: this.now + LATENCY_MS, what, act })
  }

  /** Local work, over after `ms`. */
  later(ms: number, what: () => string, act: () => void): void {
    this.#tasks.push({ from: this.now + ms, by: this.now + ms + LATENCY_MS, what, act })
  }

  /**
   * Some or all of what is under way on the lane is lost: what was sent last, or any of it when lanes have no order.
   */
  lose(lane: string): void {
    const { queue } = this.#lane(lane)
    if (this.#ordered) queue.splice(this.#dice.between(0, queue.length))
    else queue.splice(0, queue.length, ...queue.filter(() => this.#dice.chance(0.5)))
  }

  /** Whatever goes to or comes from `end` stays where it is, however long it takes, until it is released. */
  stop(end: string): void {
    this.#stopped.add(end)
  }

  release(end: string): void {
    this.#stopped.delete(end)
    for (const [name, { queue }] of this.#lanes)
      if (name.includes(end))
        queue.forEach((errand, i) => {
          queue[i] = { ...errand, by: this.now + LATENCY_MS }
        })
  }

  /** Lanes on which something is under way that can arrive. */
  *#open(): Generator<Lane> {
    for (const [name, lane] of this.#lanes)
      if (lane.queue.length > 0 && !(this.#stopped.size > 0 && [...this.#stopped].some((end) => name.includes(end))))
        yield lane
  }

  /** Something could happen now. */
  get busy(): boolean {
    return this.#tasks.some((task) => task.from <= this.now) || this.#open().next().done === false
  }

  /** Takes out what happens next, unless nothing can happen now. */
  take(): Errand | undefined {
    const ready: { readonly weight: number; readonly queue: Errand[]; readonly task?: Errand }[] = []
    let total = 0
    for (const lane of this.#open()) total += (ready.push(lane), lane.weight)
    for (const task of this.#tasks)
      if (task.from <= this.now) total += (ready.push({ weight: 1, queue: this.#tasks, task }), 1)
    let drawn = this.#dice.fraction() * total
    const chosen =
      ready.find(({ weight }) => {
        drawn -= weight
        return drawn < 0
      }) ?? ready.at(-1)
    if (chosen === undefined) return undefined
    if (chosen.task !== undefined) return remove(this.#tasks, chosen.task)
    return this.#takeFrom(chosen.queue)
  }

  /** Takes out something that must happen before the time is `now`. */
  takeOverdue(now: number): Errand | undefined {
    const task = this.#tasks.find(({ by }) => by < now)
    if (task !== undefined) return remove(this.#tasks, task)
    for (const { queue } of this.#open()) {
      const late = queue.find(({ by }) => by < now)
      if (late !== undefined) return remove(queue, this.#ordered ? queue[0] : late)
    }
    return undefined
  }

  #takeFrom(queue: Errand[]): Errand | undefined {
    if (this.#ordered) return queue.shift()
    const errand = this.#dice.pick(queue)
    return this.#dice.chance(DUPLICATES) ? errand : remove(queue, errand)
  }

  #lane(name: string): Lane {
    const known = this.#lanes.get(name)
    if (known !== undefined) return known
    const lane = { weight: this.#dice.chance(SLOW_LANES) ? SLOW_WEIGHT : 1, queue: [] }
    this.#lanes.set(name, lane)
    return lane
  }
}

function remove(queue: Errand[], errand: Errand | undefined): Errand | undefined {
  if (errand !== undefined) queue.splice(queue.indexOf(errand), 1)
  return errand
}
