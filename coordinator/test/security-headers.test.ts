import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startCoordinator } from './fixture.ts'

const WANTED = [
  'content-security-policy',
  'cross-origin-embedder-policy',
  'cross-origin-opener-policy',
  'cross-origin-resource-policy',
  'referrer-policy',
  'x-content-type-options',
  'x-frame-options',
]

test('every answer has the security headers, the first, those after it, and refusals', async () => {
  const { url } = await startCoordinator()
  const answers: Response[] = []
  for (const path of ['/healthz', '/healthz', '/nowhere', '/api/v1/jobs/none/shards'])
    answers.push(await fetch(url + path))
  const [first, ...others] = answers.map(({ headers }) => WANTED.map((name) => [name, headers.get(name)]))
  for (const [name, value] of first ?? []) assert.ok(value, `${name} is there`)
  for (const other of others) assert.deepEqual(other, first)
})
