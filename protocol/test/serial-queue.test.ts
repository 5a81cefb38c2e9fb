// One queue for all that must not run twice at a time.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SerialQueue } from '@starling-grid/protocol'

test('tasks run one at a time, in the order of the calls, also after one that failed', async () => {
  const queue = new SerialQueue()
  const events: string[] = []
  const task = (name: string, error?: Error) => async (): Promise<string> => {
    events.push(`${name} begins`)
    await new Promise((resolve) => setImmediate(resolve))
    events.push(`${name} ends`)
    if (error !== undefined) throw error
    return name
  }
  const broken = new Error('broken')
  const all = await Promise.allSettled([queue.run(task('a', broken)), queue.run(task('b')), queue.run(() => 'c')])
  assert.deepEqual(events, ['a begins', 'a ends', 'b begins', 'b ends'])
  assert.deepEqual(all, [
    { status: 'rejected', reason: broken },
    { status: 'fulfilled', value: 'b' },
    { status: 'fulfilled', value: 'c' },
  ])
})
