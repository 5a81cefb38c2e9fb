// What a job says of its rounds: which encodings go with which jobs, and what the outer step is by default.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { JobSpec } from '@starling-grid/protocol'
import { localSettings } from '../src/jobs/rounds.ts'

const JOB: JobSpec = {
  name: 'rounds',
  owner: 'a test',
  purpose: '',
  model: {},
  dataset: { source: 'digits' },
  optimizer: { type: 'sgd', lr: 0.1 },
  blockSamples: 8,
  batchBlocks: 4,
  stop: { epochs: 1 },
  seed: 1,
  mode: 'ring',
}

test('sparse2 goes with rounds, of a ring or of groups, and is refused where gradients travel', () => {
  assert.equal(localSettings({ ...JOB, mode: 'local', encoding: 'sparse2' })?.innerSteps, 16)
  assert.ok(localSettings({ ...JOB, mode: 'async', groups: {}, encoding: 'sparse2' }))
  for (const wrong of [
    { mode: 'ring' },
    { mode: 'auto', local: { innerSteps: 8 } },
    { mode: 'async' },
    { mode: 'async', groups: { innerSteps: 1 } },
  ] as const)
    assert.throws(() => localSettings({ ...JOB, ...wrong, encoding: 'sparse2' }), {
      code: 'job-invalid',
      message:
        /^encoding: expected `f32`, `f16` or `int8` .* got sparse2; write `"encoding": "int8"`, or train in rounds/,
    })
})

test('the outer step of sparse differences has less momentum, unless the job says how much', () => {
  const outerOf = (spec: Partial<JobSpec>): unknown => {
    const { outerLr, outerMomentum } = localSettings({ ...JOB, ...spec }) ?? {}
    return { outerLr, outerMomentum }
  }
  const rounds = { mode: 'local' } as const
  const groups = { mode: 'async', groups: { innerSteps: 4 } } as const
  for (const way of [rounds, groups]) {
    assert.deepEqual(outerOf(way), { outerLr: 0.7, outerMomentum: 0.7 })
    assert.deepEqual(outerOf({ ...way, encoding: 'int8' }), { outerLr: 0.7, outerMomentum: 0.7 })
    assert.deepEqual(outerOf({ ...way, encoding: 'sparse2' }), { outerLr: 0.9, outerMomentum: 0.3 })
    assert.deepEqual(outerOf({ ...way, encoding: 'sparse2', local: { outerLr: 0.5 } }), {
      outerLr: 0.5,
      outerMomentum: 0.3,
    })
    // one for all encodings that the run may choose
    assert.deepEqual(outerOf({ ...way, encoding: 'auto' }), { outerLr: 0.8, outerMomentum: 0.5 })
  }
  assert.deepEqual(outerOf({ mode: 'auto', local: { innerSteps: 4 }, encoding: 'auto' }), {
    outerLr: 0.7,
    outerMomentum: 0.7,
  })
})

test('a rate that follows the crowd is of rounds: groups that exchange gradients have none', () => {
  const job = { ...JOB, mode: 'async' } as const
  assert.ok(localSettings({ ...job, groups: { crowdRate: 'sqrt' } }))
  assert.throws(() => localSettings({ ...job, groups: { crowdRate: 'sqrt', innerSteps: 1 } }), {
    code: 'job-invalid',
    message: /groups\.crowdRate: expected rounds of more than one inner step/,
  })
})
