// The order in which members that ask for work are served, while some of them wait for a version.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memberId, random32 } from '@starling-grid/protocol'
import { WorkQueue } from '../src/run/async/work-queue.ts'

const [a, b, c, d] = ['a', 'b', 'c', 'd'].map(memberId) as [never, never, never, never]

test('those that wait for the open version are not looked at before another is open, and keep their places', () => {
  const queue = new WorkQueue()
  const [first, second] = [{}, {}]
  for (const id of [a, b, c]) queue.add(id)
  assert.deepEqual([...queue.whileOpen(first)], [a, b, c])
  queue.park(b)
  queue.park(a)
  queue.add(d)
  queue.add(a)
  assert.deepEqual([...queue.whileOpen(first)], [c, d])
  assert.deepEqual([...queue.whileOpen(second)], [a, b, c, d])
})

test('who was served or left has no place any more, and asks again behind the others', () => {
  const queue = new WorkQueue()
  for (const id of [a, b, c]) queue.add(id)
  queue.park(b)
  queue.served(b)
  queue.served(a)
  queue.park(d)
  assert.equal(queue.size, 1)
  queue.forgetServed()
  queue.add(a)
  assert.deepEqual([...queue.whileOpen({})], [c, a])
  queue.allServed()
  assert.equal(queue.size, 0)
  queue.add(c)
  assert.deepEqual([[...queue.whileOpen({})], queue.size], [[c], 1], 'it asked again before the next look')
})

test('whatever is asked, parked and served: the order is that of a list', () => {
  const words = random32(2)
  const queue = new WorkQueue()
  let list: string[] = []
  let sum = {}
  const parked = new Set<string>()
  for (let step = 0; step < 3000; step++) {
    const id = memberId(`m${words() % 12}`)
    const deed = words() % 8
    if (deed < 3 && !list.includes(id)) list.push(id)
    if (deed < 3) queue.add(id)
    if (deed === 3) {
      list = list.filter((one) => one !== id)
      parked.delete(id)
      queue.served(id)
    }
    if (deed === 4 && list.includes(id)) parked.add(id)
    if (deed === 4) queue.park(id)
    if (deed === 5) {
      sum = {}
      parked.clear()
    }
    assert.deepEqual(
      [...queue.whileOpen(sum)],
      list.filter((one) => !parked.has(one)),
    )
  }
})
