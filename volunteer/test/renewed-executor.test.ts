// What becomes of an executor whose device is lost: once it is opened anew, the second time the loss is passed on.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { initialParameters, parameterCount, parameterLayout } from '@starling-grid/model'
import { GridError, isGridError } from '@starling-grid/protocol'
import { createReferenceExecutor } from '../src/cpu/executor.ts'
import type { EarlyRanges, Executor } from '../src/graph/executor.ts'
import { renewedExecutor } from '../src/graph/renewed-executor.ts'
import { awkwardBatch, AWKWARD_MODEL } from '../testing/executor-suite.ts'

/** Reference executors whose device can be taken away. */
function devices(failing: { readonly opening?: GridError } = {}) {
  const opened: { lost: boolean; destroyed: number }[] = []
  const open = async (): Promise<Executor> => {
    if (opened.length > 0 && failing.opening) throw failing.opening
    const state = { lost: false, destroyed: 0 }
    opened.push(state)
    const reference = createReferenceExecutor(AWKWARD_MODEL)
    const unlessLost = <T>(work: Promise<T>): Promise<T> =>
      state.lost
        ? work.then(() => {
            throw new GridError('device-lost', 'The device was lost.')
          })
        : work
    return {
      adapter: reference.adapter,
      loadParameters: (flat) => reference.loadParameters(flat),
      gradient: (batch, into, early) => unlessLost(reference.gradient(batch, into, early)),
      evaluate: (batch) => unlessLost(reference.evaluate(batch)),
      predict: (x, samples) => unlessLost(reference.predict(x, samples)),
      destroy: () => {
        state.destroyed++
      },
    }
  }
  return { open, opened }
}

async function gradientOf(executor: Executor): Promise<Float32Array> {
  const into = new Float32Array(parameterCount(AWKWARD_MODEL))
  await executor.gradient(awkwardBatch(3), into)
  return into
}

test('after a loss the same batch gives the same gradient on a new device, and the loss is said', async () => {
  const { open, opened } = devices()
  const said: string[] = []
  const executor = await renewedExecutor(open, (text) => said.push(text))
  executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const before = await gradientOf(executor)
  const [first] = opened
  assert.ok(first)
  first.lost = true
  const [after, predicted] = await Promise.all([gradientOf(executor), executor.predict(awkwardBatch(2).x, 2)])
  assert.deepEqual(after, before)
  assert.ok(predicted.every(Number.isFinite))
  assert.equal(opened.length, 2)
  assert.equal(first.destroyed, 1)
  assert.match(said.join(' '), /lost.*once.*back/)
})

test('pieces that were handed out before the loss stay as they are, and are not handed out again', async () => {
  const { open, opened } = devices()
  const executor = await renewedExecutor(open, () => undefined)
  executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const whole = await gradientOf(executor)
  const { entries, total } = parameterLayout(AWKWARD_MODEL)
  const cut = entries.at(-1)?.offset ?? 0
  const into = new Float32Array(total)
  const [first] = opened
  assert.ok(first)
  const given: number[] = []
  const early: EarlyRanges = {
    ranges: [
      { start: cut, end: total },
      { start: 0, end: cut },
    ],
    onFinal(index) {
      given.push(index)
      into.fill(7, cut) // not to be touched any more
      first.lost = true
      if (index === 1) throw new GridError('device-lost', 'The device was lost.')
    },
  }
  await executor.gradient(awkwardBatch(3), into, early)
  assert.deepEqual(given, [0, 1])
  assert.ok(into.subarray(cut).every((value) => value === 7))
  assert.deepEqual(into.subarray(0, cut), whole.subarray(0, cut))
  assert.equal(opened.length, 2)
})

test('a second loss is passed on by its name', async () => {
  const { open, opened } = devices()
  const executor = await renewedExecutor(open, () => undefined)
  executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  for (const round of [0, 1]) {
    const device = opened[round]
    assert.ok(device)
    device.lost = true
    if (round === 0) await gradientOf(executor)
  }
  await assert.rejects(gradientOf(executor), (error) => isGridError(error) && error.code === 'device-lost')
  assert.equal(opened.length, 2)
})

test('when no device comes back, that is the error', async () => {
  const { open, opened } = devices({ opening: new GridError('no-adapter', 'There is none.') })
  const executor = await renewedExecutor(open, () => undefined)
  const [first] = opened
  assert.ok(first)
  first.lost = true
  await assert.rejects(gradientOf(executor), (error) => isGridError(error) && error.code === 'no-adapter')
  executor.destroy()
})
