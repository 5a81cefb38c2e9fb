// Bodies of many megabytes: received and read in pieces, so that the event loop goes on.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { after, test } from 'node:test'
import {
  completed,
  gradientForm,
  parameterLayout,
  parseModelSpec,
  writeGradient,
  writingRuns,
} from '@starling-grid/model'
import { fastify, type FastifyInstance } from 'fastify'
import { bytesOf, registerBodies, requireLength } from '../src/api/bodies.ts'
import { processClock } from '../src/clock.ts'
import { readPushBody } from '../src/host/push-body.ts'
import { turnsDuring } from './turns-during.ts'

const MIB = 1024 * 1024
const MOST_BYTES = 64 * MIB
/** Reading the numbers and hashing them leave a turn each for a mebibyte. */
const TURNS_PER_MIB = 2
const ROWS = 20_000

const spec = parseModelSpec({
  name: 'wide',
  input: [8],
  layers: [
    { type: 'embedding', name: 'table', vocab: ROWS, channels: 64 },
    { type: 'flatten' },
    { type: 'linear', name: 'fc', out: 1024 },
  ],
})
const layout = parameterLayout(spec)
const table = layout.entries.filter(({ name }) => name.startsWith('table'))

/** Σ gradients in which these rows of the table, and all of the rest, are not zero. */
function gradientWith(rows: number): Float32Array {
  const gradient = Float32Array.from({ length: layout.total }, (_, i) => 1 + (i % 7))
  for (const { offset, shape } of table) gradient.fill(0, offset + rows * (shape[1] ?? 0), offset + ROWS * 64)
  return gradient
}

for (const [what, rows] of [
  ['dense', ROWS],
  ['sparse', 0.4 * ROWS],
] as const)
  test(`threat 24: while the ${what} body of a large push is read the event loop goes on`, async () => {
    const gradient = gradientWith(rows)
    const { body, sparse } = writeGradient(gradient, layout, table)
    assert.equal(sparse.length > 0, what === 'sparse')
    let read: Awaited<ReturnType<typeof readPushBody>> | undefined
    const turns = await turnsDuring(async () => {
      read = await readPushBody(body, { form: gradientForm(layout, sparse), layout }, processClock)
    })
    assert.ok(turns > TURNS_PER_MIB * Math.floor(body.byteLength / MIB) - 2, `${turns} turns`)
    assert.equal(read?.digest, createHash('sha256').update(body).digest('hex'))
    const written = new Float32Array(layout.total).fill(9)
    completed(writingRuns(read?.gradient.runs() ?? [], written))
    assert.ok(written.every((value, i) => value === gradient[i]))
  })

test('a number that is not finite in any piece of a push is refused', async () => {
  for (const at of [0, layout.total >> 1, layout.total - 1]) {
    const gradient = new Float32Array(layout.total)
    gradient[at] = Number.NaN
    const { body, sparse } = writeGradient(gradient, layout, [])
    await assert.rejects(readPushBody(body, { form: gradientForm(layout, sparse), layout }, processClock), {
      code: 'gradient-not-finite',
    })
  }
})

async function listening(handle: (bytes: Uint8Array) => unknown): Promise<string> {
  const app: FastifyInstance = fastify()
  registerBodies(app)
  app.put(
    '/body',
    { bodyLimit: MOST_BYTES, onRequest: async (request) => void requireLength(request, MOST_BYTES) },
    async (request) => handle(bytesOf(request)),
  )
  after(() => app.close())
  return `${await app.listen({ port: 0, host: '127.0.0.1' })}/body`
}

const headers = { 'content-type': 'application/octet-stream' }

test('threat 24: a large body is one piece of memory when its last byte comes, and nothing is joined', async (t) => {
  const join = t.mock.method(Buffer, 'concat')
  const url = await listening((bytes) => ({
    sha256: createHash('sha256').update(bytes).digest('hex'),
    own: bytes.buffer.byteLength === bytes.byteLength,
  }))
  const body = new Uint8Array(8 * MIB).map((_, i) => i)
  const answer = await fetch(url, { method: 'PUT', headers, body })
  assert.deepEqual(await answer.json(), { sha256: createHash('sha256').update(body).digest('hex'), own: true })
  const joined = join.mock.calls.map(({ arguments: [parts] }) => parts.reduce((sum, { length }) => sum + length, 0))
  assert.ok(Math.max(0, ...joined) < MIB, `${Math.max(...joined)} bytes joined in one turn`)
})

test('an empty body is an empty one', async () => {
  const url = await listening((bytes) => ({ bytes: bytes.byteLength }))
  const answer = await fetch(url, { method: 'PUT', headers, body: new Uint8Array(0) })
  assert.deepEqual(await answer.json(), { bytes: 0 })
})
