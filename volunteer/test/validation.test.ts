// Validation on a volunteer when what it needs cannot be had.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  type BlockId,
  type ErrorCode,
  GridError,
  type LeaseToken,
  type ToCoordinator,
  validationBlock,
  versionId,
} from '@starling-grid/protocol'
import { validateLeases } from '../src/async/validation.ts'
import type { Batch } from '../src/graph/executor.ts'

const VERSION = { v: 4, id: versionId('c'.repeat(64)) }
const LEASES: LeaseToken[] = [0, 1, 2].map((index) => ({ block: validationBlock(index), leaseEpoch: 7 }))
const BATCH = { samples: 2 } as Batch

async function validate(
  batchOf: (block: BlockId) => void,
  pull: () => void = () => undefined,
  isStale = () => false,
): Promise<string[]> {
  const said: ToCoordinator[] = []
  await validateLeases(
    { type: 'validate', version: VERSION, leases: LEASES },
    {
      send: (message) => void said.push(message),
      compute: { evaluate: async () => ({ lossSum: 1, targets: 2, correct: 1 }) },
      batches: {
        of: async ([block]) => {
          batchOf(block as BlockId)
          return BATCH
        },
      },
      parametersOf: async (version) => {
        pull()
        return { version, parameters: new Float32Array(1) }
      },
      isStale,
    },
  )
  return said.map((message) => {
    if (message.type === 'validated') return message.lease.block
    if (message.type !== 'gave-back') return message.type
    return `gave back ${message.leases.map(({ block }) => block).join(' ')}: ${message.code}`
  })
}

const failing = (code: ErrorCode) => (): never => {
  throw new GridError(code, 'made up')
}

test('parameters that cannot be pulled cost the leases, which go back, and not the volunteer', async () => {
  for (const code of ['base-stale', 'rate-exceeded', 'coordinator-lost', 'version-corrupt'] as const)
    assert.deepEqual(await validate(() => undefined, failing(code)), [`gave back v:0 v:1 v:2: ${code}`])
})

test('blocks of an order that a newer one replaced are not measured: their answer would only come late', async () => {
  let left = 2
  assert.deepEqual(
    await validate(
      () => left--,
      undefined,
      () => left === 0,
    ),
    ['v:0', 'v:1'],
  )
})

test('a coordinator that is lost in the middle gets back what is not answered', async () => {
  assert.deepEqual(await validate((block) => block === 'v:1' && failing('coordinator-lost')()), [
    'v:0',
    'gave back v:1 v:2: coordinator-lost',
  ])
})

test('a damaged or missing shard costs its blocks only', async () => {
  for (const code of ['shard-corrupt', 'message-unexpected'] as const)
    assert.deepEqual(await validate((block) => block === 'v:1' && failing(code)()), [
      'v:0',
      `gave back v:1: ${code}`,
      'v:2',
    ])
})

test('what is fatal ends the volunteer: it is not given back as if another try could help', async () => {
  await assert.rejects(validate(failing('device-lost')), /made up/)
})
