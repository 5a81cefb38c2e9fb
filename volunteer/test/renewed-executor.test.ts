// What becomes of an executor whose device is lost or has no memory: it is opened anew with less work at once, after a
// pause that grows, and given up after three losses within an hour.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { initialParameters, parameterCount, parameterLayout } from '@starling-grid/model'
import { type Clock, GridError, isGridError, systemClock } from '@starling-grid/protocol'
import { createReferenceExecutor } from '../src/cpu/executor.ts'
import type { EarlyRanges, Executor } from '../src/graph/executor.ts'
import { OutOfDeviceMemory } from '../src/graph/out-of-device-memory.ts'
import { type DeviceTrouble, renewedExecutor } from '../src/graph/renewed-executor.ts'
import { awkwardBatch, AWKWARD_MODEL } from '../testing/executor-suite.ts'

/** A clock whose pauses take no time, and are noted. */
function pausing() {
  const pauses: number[] = []
  const state = { now: 0 }
  const clock: Clock = {
    ...systemClock,
    now: () => state.now,
    sleep: async (ms) => {
      pauses.push(ms)
      state.now += ms
    },
  }
  return { clock, pauses, state }
}

/** Reference executors whose device can be taken away, or has no memory. */
function devices(failing: { readonly opening?: GridError } = {}) {
  const opened: { lost: boolean; full: boolean; destroyed: number; trouble: DeviceTrouble }[] = []
  const open = async (trouble: DeviceTrouble): Promise<Executor> => {
    if (opened.length > 0 && failing.opening) throw failing.opening
    const state = { lost: false, full: false, destroyed: 0, trouble }
    opened.push(state)
    const reference = createReferenceExecutor(AWKWARD_MODEL)
    const unlessLost = async <T>(work: Promise<T>): Promise<T> => {
      const result = await work
      if (state.lost) throw new GridError('device-lost', 'The device was lost.')
      if (state.full) throw new OutOfDeviceMemory(1, 'It is full.')
      return result
    }
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
  const executor = await renewedExecutor(open, { say: (text) => said.push(text), clock: pausing().clock })
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
  assert.match(said.join(' '), /lost.*again in 0\.5 s.*back/)
})

test('pieces that were handed out before the loss stay as they are, and are not handed out again', async () => {
  const { open, opened } = devices()
  const executor = await renewedExecutor(open, { say: () => undefined, clock: pausing().clock })
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

test('three losses within an hour are repaired, each after a longer pause and with less work at once', async () => {
  const { open, opened } = devices()
  const { clock, pauses, state } = pausing()
  const losses: number[] = []
  const executor = await renewedExecutor(open, { say: () => undefined, onLost: () => losses.push(state.now), clock })
  executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const loseAndGo = async (): Promise<void> => {
    const device = opened.at(-1)
    assert.ok(device)
    device.lost = true
    await gradientOf(executor)
  }
  for (let i = 0; i < 3; i++) await loseAndGo()
  assert.deepEqual(pauses, [500, 1000, 2000])
  assert.deepEqual(
    opened.map(({ trouble }) => trouble.losses),
    [0, 1, 2, 3],
  )
  await assert.rejects(loseAndGo(), (error) => isGridError(error) && error.code === 'device-lost')
  assert.deepEqual([opened.length, losses.length], [4, 3])
  state.now += 3_600_001 // an hour later the old losses count no more
  await gradientOf(executor)
  assert.deepEqual([opened.length, opened.at(-1)?.trouble.losses], [5, 1])
})

test('a device without memory in the midst of a run is opened anew with less, at once', async () => {
  const { open, opened } = devices()
  const { clock, pauses } = pausing()
  const executor = await renewedExecutor(open, { say: () => undefined, clock })
  executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
  const before = await gradientOf(executor)
  for (const shortages of [1, 2]) {
    const device = opened.at(-1)
    assert.ok(device)
    device.full = true
    assert.deepEqual(await gradientOf(executor), before)
    assert.deepEqual(opened.at(-1)?.trouble, { losses: 0, shortages })
  }
  assert.deepEqual(pauses, [])
})

test('when no device comes back, that is the error', async () => {
  const { open, opened } = devices({ opening: new GridError('no-adapter', 'There is none.') })
  const executor = await renewedExecutor(open, { say: () => undefined, clock: pausing().clock })
  const [first] = opened
  assert.ok(first)
  first.lost = true
  await assert.rejects(gradientOf(executor), (error) => isGridError(error) && error.code === 'no-adapter')
  executor.destroy()
})
