import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import { parseOptimizerSpec, randomWords } from '@starling-grid/model'
import { GridError, readSafetensors, writeSafetensors } from '@starling-grid/protocol'
import {
  applyUpdate,
  clipGlobalNorm,
  createOptimizerState,
  learningRate,
  meanGradient,
  type OptimizerSpec,
} from '@starling-grid/shaders'
import { optimizerTensors, restoreOptimizer } from '../src/optimizer.ts'

const COUNT = 1000
const UPDATES = 20

function noise(stream: number): Float32Array<ArrayBuffer> {
  const word = randomWords(7, stream)
  return Float32Array.from({ length: COUNT }, (_, i) => word(i) / 2 ** 31 - 1)
}

function train(spec: OptimizerSpec, updates: number) {
  let [parameters, next] = [noise(0), new Float32Array(COUNT)]
  let [state, nextState] = [createOptimizerState(spec, COUNT), createOptimizerState(spec, COUNT)]
  for (let i = 1; i <= updates; i++) {
    applyUpdate(spec, state, parameters, noise(i), next, nextState)
    ;[parameters, next, state, nextState] = [next, parameters, nextState, state]
  }
  return { parameters, state }
}

const PINNED: [OptimizerSpec, string][] = [
  [{ type: 'sgd', lr: 0.1 }, '1b94802f61851fcd'],
  [{ type: 'sgd', lr: 0.02, momentum: 0.9, weightDecay: 0.01 }, 'fc8e011742ec725c'],
  [{ type: 'sgd', lr: 0.02, momentum: 0.9, nesterov: true }, '57ca37e4b5e26e3f'],
  [{ type: 'adam', lr: 0.002, weightDecay: 0.01 }, '1d1fda7382bb1559'],
  [{ type: 'adamw', lr: 0.003, betas: [0.9, 0.95], weightDecay: 0.1 }, 'a8303c464694c932'],
]

for (const [spec, expected] of PINNED)
  test(`${JSON.stringify(spec)} gives the same bits on every machine`, () => {
    const { parameters } = train(spec, UPDATES)
    assert.equal(createHash('sha256').update(new Uint8Array(parameters.buffer)).digest('hex').slice(0, 16), expected)
  })

test('an update leaves the old version whole', () => {
  const spec: OptimizerSpec = { type: 'adamw', lr: 0.01 }
  const { parameters, state } = train(spec, 3)
  const before = {
    parameters: parameters.slice(),
    slots: state.slots.map((slot) => slot.slice()),
    scalars: state.scalars.slice(),
  }
  applyUpdate(spec, state, parameters, noise(9), new Float32Array(COUNT), createOptimizerState(spec, COUNT))
  assert.deepEqual({ parameters, slots: state.slots, scalars: state.scalars }, before)
  assert.equal(state.step, 3)
})

test('an update in place equals one out of place', () => {
  const spec: OptimizerSpec = { type: 'sgd', lr: 0.1, momentum: 0.9, nesterov: true }
  const { parameters, state } = train(spec, 2)
  const [next, nextState] = [new Float32Array(COUNT), createOptimizerState(spec, COUNT)]
  applyUpdate(spec, state, parameters, noise(9), next, nextState)
  applyUpdate(spec, state, parameters, noise(9), parameters, state)
  assert.deepEqual(parameters, next)
  assert.deepEqual(state, nextState)
})

test('training goes on bit for bit from stored state', () => {
  for (const [spec] of PINNED) {
    const straight = train(spec, 5)
    const early = train(spec, 4)
    const { tensors } = readSafetensors(writeSafetensors(optimizerTensors(spec, early.state)))
    const restored = restoreOptimizer(spec, COUNT, tensors)
    applyUpdate(spec, restored, early.parameters, noise(5), early.parameters, restored)
    assert.deepEqual(early.parameters, straight.parameters)
    assert.deepEqual(restored, straight.state)
  }
})

test('state of another optimizer or another model is refused', () => {
  const spec: OptimizerSpec = { type: 'adam', lr: 0.1 }
  const tensors = optimizerTensors(spec, createOptimizerState(spec, 8))
  assert.throws(() => restoreOptimizer(spec, 9, tensors), /expected optimizer.exp_avg with 9 values/)
  assert.throws(
    () => restoreOptimizer({ type: 'sgd', lr: 0.1 }, 8, tensors),
    /expected optimizer.scalars with 0 values/,
  )
})

test('clipping bounds the norm and leaves small gradients alone', () => {
  const gradient = Float32Array.of(3, 4)
  assert.equal(clipGlobalNorm(gradient, 10), 5)
  assert.deepEqual([...gradient], [3, 4])
  assert.equal(clipGlobalNorm(gradient, 1), 5)
  assert.ok(Math.abs(Math.hypot(...gradient) - 1) < 1e-5)
  const little = Float32Array.of(3, 4)
  clipGlobalNorm(little, 4.9)
  assert.ok(Math.abs(Math.hypot(...little) - 4.9) < 1e-5, 'also where it is a little too long')
  assert.ok(Number.isNaN(clipGlobalNorm(Float32Array.of(NaN, 1), 1)))
})

test('the mean divides once by the number of targets', () => {
  const out = new Float32Array(2)
  meanGradient(Float32Array.of(1, 6), 3, out)
  assert.deepEqual([...out], [Math.fround(1 / 3), 2])
})

test('a wrong optimizer is refused by attribute', () => {
  for (const [json, pattern] of [
    [{ type: 'sdg', lr: 1 }, /`type` to be one of sgd, adam, adamw/],
    [{ type: 'sgd' }, /`lr` to be a positive number and gets nothing/],
    [{ type: 'sgd', lr: 0.1, momentum: 1 }, /`momentum`/],
    [{ type: 'adam', lr: 0.1, betas: [0.9] }, /`betas`/],
    [{ type: 'adam', lr: 0.1, weight_decay: 0.1 }, /unknown attribute `weight_decay`/],
  ] as const)
    assert.throws(
      () => parseOptimizerSpec(json),
      (error: unknown) => {
        assert.ok(error instanceof GridError && error.code === 'job-invalid')
        assert.match(error.message, pattern)
        return true
      },
    )
  assert.deepEqual(parseOptimizerSpec({ type: 'adamw', lr: 1e-3, betas: [0.9, 0.95] }), {
    type: 'adamw',
    lr: 1e-3,
    betas: [0.9, 0.95],
  })
})

test('a linear schedule falls from the full rate to its fraction, and stays there', () => {
  const spec = { type: 'sgd', lr: 1, schedule: { type: 'linear', to: 0.5, steps: 4 } } as const
  assert.deepEqual(
    [0, 1, 2, 4, 9].map((step) => learningRate(spec, step)),
    [1, 0.875, 0.75, 0.5, 0.5],
  )
  assert.equal(learningRate({ type: 'sgd', lr: 0.25 }, 100), 0.25)
})
