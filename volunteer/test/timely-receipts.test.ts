// Receipts in time, on a clock that the test turns.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { CancelTimer, Clock } from '@starling-grid/protocol'
import { TimelyReceipts } from '../src/link/timely-receipts.ts'

/** Time passes when the test says so. */
class TurnedClock implements Clock {
  #now = 0
  readonly #due: { at: number; readonly act: () => void; readonly every: number }[] = []

  get waiting(): number {
    return this.#due.length
  }
  now(): number {
    return this.#now
  }
  wallTime(): number {
    return this.#now
  }
  async sleep(): Promise<void> {}
  timer(ms: number, act: () => void): CancelTimer {
    return this.#add({ at: this.#now + ms, act, every: Number.POSITIVE_INFINITY })
  }
  every(ms: number, act: () => void): CancelTimer {
    return this.#add({ at: this.#now + ms, act, every: ms })
  }
  pass(ms: number): void {
    for (const end = this.#now + ms; this.#now < end;) {
      this.#now++
      for (const due of this.#due.filter(({ at }) => at === this.#now)) {
        due.at += due.every
        due.act()
      }
    }
  }
  #add(due: { at: number; readonly act: () => void; readonly every: number }): CancelTimer {
    this.#due.push(due)
    return () => this.#due.splice(0, this.#due.length, ...this.#due.filter((other) => other !== due))
  }
}

function begin(): { readonly clock: TurnedClock; readonly timely: TimelyReceipts; readonly said: () => number } {
  const clock = new TurnedClock()
  let said = 0
  return { clock, timely: new TimelyReceipts(clock, () => said++), said: () => said }
}

test('after an announcement a receipt leaves every 10 ms, for a second after the last frame', () => {
  const { clock, timely, said } = begin()
  timely.announced()
  clock.pass(100)
  assert.equal(said(), 10, 'though no frame is whole yet')
  timely.came(false)
  clock.pass(10_000)
  assert.equal(said(), 110)
  assert.equal(clock.waiting, 0, 'a link that rests costs nothing')
})

test('a receipt that left for a frame takes the place of one in time', () => {
  const { clock, timely, said } = begin()
  timely.announced()
  for (let frame = 0; frame < 500; frame++) {
    timely.came(true)
    clock.pass(10)
  }
  assert.equal(said(), 0)
})

test('frames that were not announced get receipts for their bytes alone, and so do those of a closed link', () => {
  const { clock, timely, said } = begin()
  timely.came(true)
  clock.pass(100)
  timely.announced()
  timely.stop()
  clock.pass(100)
  assert.equal(said(), 0)
})
