// The digest of a step is the same wherever it is made, and a thread that ends costs none.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import { HashThread } from '../src/hash-thread.ts'
import { createNodeHost } from '../src/host.ts'

const MB = 2 ** 20
const wanted = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

function vector(bytes: number, seed: number): Uint8Array {
  return new Uint8Array(Uint32Array.from({ length: bytes / 4 }, (_, i) => Math.imul(i + seed, 0x9e37_79b1)).buffer)
}

test('vectors of any length have the SHA-256 of their bytes, also two that are asked for at once', async (t) => {
  const hashes = new HashThread()
  t.after(() => hashes.stop())
  const vectors = [vector(16, 1), vector(6 * MB, 2), vector(5 * MB, 3), vector(66 * MB, 4), vector(6 * MB, 5)]
  const part = new Uint8Array(vector(9 * MB, 6).buffer, 4, 8 * MB)
  const all = [...vectors, part]
  assert.deepEqual(await Promise.all(all.map((bytes) => hashes.digestOf(bytes))), all.map(wanted))
})

test('a thread that ends while it hashes costs no digest, and the next vector gets another thread', async (t) => {
  const hashes = new HashThread()
  t.after(() => hashes.stop())
  const bytes = vector(48 * MB, 7)
  const digest = hashes.digestOf(bytes)
  await new Promise(setImmediate)
  hashes.stop()
  assert.equal(await digest, wanted(bytes))
  assert.equal(await hashes.digestOf(vector(6 * MB, 8)), wanted(vector(6 * MB, 8)))
})

test("a headless volunteer hashes its steps' sums there, and its process may end with the thread asleep", async () => {
  const { digestOf } = createNodeHost({ coordinatorUrl: 'http://127.0.0.1:1', executor: 'reference' })
  const bytes = vector(6 * MB, 9)
  assert.equal(await digestOf?.(bytes), wanted(bytes))
})
