// What the outbox is given leaves, whenever it comes.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { systemClock } from '@starling-grid/protocol'
import { Outbox } from '../src/host/outbox.ts'

/** Turns of the microtask queue after the last decision left: by then an outbox has long come to rest. */
const TURNS = 10

test('a decision that comes while the outbox comes to rest leaves without another one after it', async () => {
  for (let turns = 0; turns < TURNS; turns++) {
    const left: string[] = []
    let done = (): void => undefined
    const all = new Promise<void>((resolve) => {
      done = resolve
    })
    const outbox = new Outbox<string>({
      clock: systemClock,
      append: async () => undefined,
      onDurable: () => undefined,
      carryOut: () => undefined,
      onDone: ({ context }) => {
        left.push(context)
        if (context === 'second') return done()
        let last = Promise.resolve()
        for (let turn = 0; turn < turns; turn++) last = last.then(() => undefined)
        void last.then(() => outbox.add({ effects: [], at: 0, context: 'second' }))
      },
      onAbandoned: ({ context }) => left.push(`${context} abandoned`),
      onTrouble: () => undefined,
      onDefect: assert.ifError,
      onDeposed: assert.ifError,
    })
    outbox.add({ effects: [], at: 0, context: 'first' })
    await Promise.race([all, systemClock.sleep(1000)])
    assert.deepEqual(left, ['first', 'second'], `${turns} turns later`)
  }
})
