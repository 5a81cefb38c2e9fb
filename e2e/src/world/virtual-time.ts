// Time of a simulated grid. Hours pass as fast as their events can be carried out, one at a time, and between two
// events all promises settle. Each simulated process has a clock of its own, which dies or stands still with it.
import type { CoordinatorClock } from '@starling-grid/coordinator/shell'
import { type CancelTimer, sleepOn } from '@starling-grid/protocol'

/** ms since the epoch at which every simulation begins */
const BEGIN = 1.7e12
/** turns of the event loop that a request inside this process may take between two events */
const MOST_TURNS = 24

/** of one turn of the event loop */
const IMMEDIATES = 32

interface Event {
  readonly at: number
  readonly order: number
  readonly process: VirtualProcess
  act: (() => void) | undefined
}

export class VirtualTime {
  now = 0
  events = 0
  /** requests that are between their caller and their answer inside this process */
  inFlight = 0
  /** told when all that followed an event has happened */
  afterEach: () => void = () => undefined
  #order = 0
  #next: (() => void) | undefined
  #immediates = 0
  /** a binary heap, the earliest first */
  readonly #heap: Event[] = []

  process(): VirtualProcess {
    return new VirtualProcess(this)
  }

  schedule(at: number, process: VirtualProcess, act: () => void): CancelTimer {
    const event: Event = { at, order: this.#order++, process, act }
    this.#push(event)
    return () => {
      event.act = undefined
    }
  }

  /** Event by event, until `isOver` or the time is up. */
  async run(isOver: () => boolean, untilMs: number): Promise<void> {
    await this.#settle()
    while (!isOver() && this.now < untilMs) {
      const event = this.#pop()
      if (event === undefined) return
      if (event.act === undefined || event.process.isDead) continue
      const awakeAt = event.process.standsStillUntil
      if (awakeAt > event.at) {
        this.#push({ ...event, at: awakeAt })
        event.act = undefined
        continue
      }
      this.now = Math.max(this.now, event.at)
      this.events++
      event.act()
      await this.#settle()
      this.afterEach()
    }
  }

  /** All that follows without time passing: promises, and where a request is on its way turns of the event loop. */
  async #settle(): Promise<void> {
    await new Promise<void>((resolve) => this.#afterPromises(resolve))
    for (let turns = 0; this.inFlight > 0 && turns < MOST_TURNS; turns++)
      await new Promise((resolve) => setImmediate(resolve))
  }

  /** Node settles all promises between two immediates of one turn, and a turn for each event costs a sixth more. */
  #afterPromises(act: () => void): void {
    this.#next = act
    if (this.#immediates > 0) return
    this.#immediates = IMMEDIATES
    for (let i = 0; i < IMMEDIATES; i++) setImmediate(this.#immediate)
  }

  readonly #immediate = (): void => {
    this.#immediates--
    const act = this.#next
    this.#next = undefined
    act?.()
  }

  #push(event: Event): void {
    const heap = this.#heap
    let at = heap.push(event) - 1
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!isBefore(event, heap[parent])) break
      heap[at] = heap[parent] ?? event
      at = parent
    }
    heap[at] = event
  }

  #pop(): Event | undefined {
    const heap = this.#heap
    const [first] = heap
    const last = heap.pop()
    if (first === undefined || last === undefined || heap.length === 0) return first
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child + 1 < heap.length && isBefore(heap[child + 1], heap[child])) child++
      const next = heap[child]
      if (next === undefined || !isBefore(next, last)) break
      heap[at] = next
      at = child
    }
    heap[at] = last
    return first
  }
}

function isBefore(a: Event | undefined, b: Event | undefined): boolean {
  if (a === undefined || b === undefined) return false
  return a.at < b.at || (a.at === b.at && a.order < b.order)
}

/** The clock of one process. */
export class VirtualProcess implements CoordinatorClock {
  readonly #time: VirtualTime
  isDead = false
  standsStillUntil = 0

  constructor(time: VirtualTime) {
    this.#time = time
  }

  now = (): number => this.#time.now
  wallTime = (): number => BEGIN + this.#time.now
  awake = (): number => Math.round(BEGIN + this.#time.now)
  sleep = (ms: number, signal?: AbortSignal): Promise<void> => sleepOn(this, ms, signal)

  timer = (ms: number, act: () => void): CancelTimer => {
    if (this.isDead) return () => undefined
    return this.#time.schedule(this.#time.now + Math.max(0, ms), this, act)
  }

  looseTimer = (ms: number, act: () => void): CancelTimer => this.timer(ms, act)

  every = (ms: number, act: () => void): CancelTimer => {
    let cancel: CancelTimer = () => undefined
    const beat = (): void => {
      cancel = this.timer(ms, beat)
      act()
    }
    cancel = this.timer(ms, beat)
    return () => cancel()
  }

  /** SIGKILL: what it waits for never comes. */
  kill(): void {
    this.isDead = true
  }

  /** A lid that is closed: all that would happen to it happens when it opens. */
  standStill(ms: number): void {
    this.standsStillUntil = this.#time.now + ms
  }
}
