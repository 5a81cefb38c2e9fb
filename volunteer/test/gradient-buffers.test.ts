// Memory of gradients: one assignment at a time, and none while an older computation may still write.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GradientBuffers } from '../src/compute.ts'

function pending(): {
  readonly done: Promise<string>
  readonly finish: () => void
  readonly fail: (why: Error) => void
} {
  let [finish, fail]: [() => void, (why: Error) => void] = [() => undefined, () => undefined]
  const done = new Promise<string>((resolve, reject) => {
    ;[finish, fail] = [() => resolve('done'), reject]
  })
  return { done, finish, fail }
}

test('memory goes from one assignment to the next when the first is over', async () => {
  const buffers = new GradientBuffers(3)
  const first = buffers.lease()
  assert.equal(await first.use(async () => 'done'), 'done')
  assert.notEqual(buffers.lease().values, first.values)
  first.end()
  first.end()
  assert.equal(buffers.lease().values, first.values)
  assert.notEqual(buffers.lease().values, first.values, 'ended twice, given back once')
})

test('memory that a computation still writes is leased again only after that, and its result is dropped', async () => {
  const buffers = new GradientBuffers(3)
  const [old, task] = [buffers.lease(), pending()]
  const result = old.use(() => task.done)
  old.end()
  assert.notEqual(buffers.lease().values, old.values)
  task.finish()
  assert.equal(await result, undefined)
  assert.equal(buffers.lease().values, old.values)
})

test('a computation that has not begun when its assignment ends never begins', async () => {
  const lease = new GradientBuffers(3).lease()
  lease.end()
  assert.equal(await lease.use(() => assert.fail('it began')), undefined)
})

test('memory of a computation that failed is given up: a part of it may still run', async () => {
  const buffers = new GradientBuffers(3)
  const [lease, task] = [buffers.lease(), pending()]
  const result = lease.use(() => task.done)
  task.fail(new Error('lost'))
  await assert.rejects(result, /lost/)
  lease.end()
  assert.notEqual(buffers.lease().values, lease.values)
})
