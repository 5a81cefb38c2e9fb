// A job that requires more than a machine has is left to others, with the reason.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GridError } from '@starling-grid/protocol'
import { requireAdapter, requireMemory, unmetWithoutAdapter } from '../src/requirements.ts'

const GPU = { name: 'a GPU', vendor: 'a maker', software: false, executor: 'webgpu' } as const

test('a volunteer whose owner allows less memory than the job requires declines, naming the setting', () => {
  assert.throws(() => requireMemory({ memory: 8 }, { memoryBytes: 4e9 }), {
    code: 'requirement-unmet',
    message: /^expected 8 GB of memory, which the job requires, got a limit of 4 GB; raise --max-memory/,
  })
  requireMemory({ memory: 4 }, { memoryBytes: 4e9 })
  requireMemory({}, { memoryBytes: 1 })
})

test('software adapters and the reference executor decline a job for real GPUs', () => {
  const refusal = { code: 'requirement-unmet', message: /^expected a real GPU, which the job requires, got a GPU/ }
  assert.throws(() => requireAdapter({ realGpu: true }, { ...GPU, software: true }), refusal)
  assert.throws(() => requireAdapter({ realGpu: true }, { ...GPU, executor: 'reference' }), refusal)
  requireAdapter({ realGpu: true }, GPU)
  requireAdapter({}, { ...GPU, software: true })
})

test('an adapter without shader-f16, and a machine without any, decline a job that requires it', () => {
  const refusal = { code: 'requirement-unmet', message: /^expected an adapter with the feature shader-f16, which the/ }
  assert.throws(() => requireAdapter({ f16: true }, GPU), refusal)
  requireAdapter({ f16: true }, { ...GPU, f16: true })
  requireAdapter({}, GPU)
  const none = new GridError('no-adapter', 'expected a graphics adapter, got none')
  assert.equal(unmetWithoutAdapter({}, none), none, 'where none is required it is an error as before')
  assert.throws(() => {
    throw unmetWithoutAdapter({ f16: true }, none)
  }, refusal)
})
