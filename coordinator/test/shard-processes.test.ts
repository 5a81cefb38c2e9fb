// A parameter server whose key ranges are in processes of their own, over real sockets.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { AddressInfo, Socket } from 'node:net'
import { after, test } from 'node:test'
import {
  encodeVector,
  gradientForm,
  initialVersionState,
  parameterLayout,
  parseModelSpec,
  readPush,
  type VersionForm,
} from '@starling-grid/model'
import { digest, versionId, type VersionRef, type WatchMessage } from '@starling-grid/protocol'
import { WebSocket, WebSocketServer } from 'ws'
import { ParameterServer } from '../src/parameter-server/parameter-server.ts'
import { ShardHost } from '../src/parameter-server/shard-host.ts'
import { serveShard } from '../src/parameter-server/shard-process.ts'
import { readRange, ShardProcesses } from '../src/parameter-server/shard-processes.ts'
import { recordsOf, runOf, smallJob, startCoordinator, submit, TOKEN, until, volunteer, watch } from './fixture.ts'
import { gradientOf } from './pushed-gradient.ts'

const BLOCKS = 36

interface Process {
  readonly ended: Promise<void>
  stop(): void
}

/** Resolves when the coordinator took it. */
async function shardProcess(url: string, range: string, token = TOKEN): Promise<Process> {
  const end = new AbortController()
  after(() => end.abort())
  let ended: Promise<void> = Promise.resolve()
  await new Promise<void>((resolve, reject) => {
    ended = serveShard({ url, range, token, log: (line) => line.startsWith(`range ${range}`) && resolve() }, end.signal)
    ended.catch(reject)
  })
  return { ended, stop: () => end.abort() }
}

async function assertEachBlockOnce(url: string, id: string, epochs = 1): Promise<void> {
  const records = await recordsOf(url, id)
  const blocks = records.flatMap((record) => record.blocks)
  assert.deepEqual([blocks.length, new Set(blocks).size], [BLOCKS * epochs, BLOCKS * epochs])
}

/** Texts of all events so far. */
async function eventsOf(url: string): Promise<string[]> {
  const { messages, stop } = watch(url)
  try {
    for await (const message of messages as AsyncIterable<WatchMessage>)
      if (message.type === 'snapshot') return message.events.map(({ text }) => text)
  } finally {
    stop()
  }
  return []
}

test('a run in async mode trains through two processes, and its checkpoint holds what they hold', async () => {
  const { url } = await startCoordinator()
  const processes = await Promise.all(['0/2', '1/2'].map((range) => shardProcess(url, range)))
  const { id } = await submit(
    url,
    smallJob({ mode: 'async', stop: { epochs: 1 }, optimizer: { type: 'adamw', lr: 0.001 } }),
  )
  const fakes = [volunteer(url), volunteer(url)]
  await Promise.all(fakes.map((fake) => fake.heard('finished')))
  await assertEachBlockOnce(url, id)
  const run = await runOf(url, id)
  assert.equal(run.checkpoint?.v, run.version.v)
  assert.ok((await eventsOf(url)).some((text) => text.includes('2 processes')))
  for (const one of processes) one.stop()
  await Promise.all(processes.map(({ ended }) => ended))
})

/** Long enough for the coordinator to miss the process before the run is over. */
const EPOCHS = 40

test('a process that goes away in the middle costs no sample', async () => {
  const { url } = await startCoordinator()
  const [first] = await Promise.all(['0/2', '1/2'].map((range) => shardProcess(url, range)))
  const { id } = await submit(url, smallJob({ mode: 'async', stop: { epochs: EPOCHS } }))
  const fakes = [volunteer(url, { stepMs: 100 }), volunteer(url, { stepMs: 100 })]
  await until(url, 'the first versions', (run) => run.mode === 'async' && run.version.v > 1)
  first?.stop()
  await Promise.all(fakes.map((fake) => fake.heard('finished')))
  await assertEachBlockOnce(url, id, EPOCHS)
  const events = await eventsOf(url)
  assert.ok(
    events.some((text) => text.includes('the parameter server stopped')) &&
      events.some((text) => text.includes('own thread')),
  )
})

test('only the owner holds ranges, each once, and only ranges that there are', async () => {
  const { url } = await startCoordinator()
  await assert.rejects(shardProcess(url, '0/2', 'another-token-than-ours'), { code: 'token-required' })
  await assert.rejects(shardProcess(url, '2/2'), { code: 'message-malformed' })
  await shardProcess(url, '0/2')
  const second = serveShard({ url, range: '0/2', token: TOKEN, log: () => undefined }, new AbortController().signal)
  await assert.rejects(second, /expected a free range, got 0\/2, which another process serves/)
})

test('a shard takes no order out of turn or out of range', () => {
  const layout = { total: 8, trained: 8, entries: [{ name: 'w', shape: [8], offset: 0, length: 8, kind: 'trained' }] }
  const setup = JSON.stringify({
    type: 'setup',
    optimizer: { type: 'sgd', lr: 1 },
    versions: 2,
    compensated: false,
    layout,
  })
  const order = (value: unknown): string => JSON.stringify(value)
  const fresh = (): ShardHost => {
    const host = new ShardHost()
    host.ordered(setup)
    return host
  }
  assert.throws(() => new ShardHost().ordered(order({ type: 'mean', targets: 1 })), { code: 'message-unexpected' })
  assert.throws(() => fresh().ordered(order({ type: 'nonsense' })), { code: 'message-malformed' })
  assert.throws(() => fresh().ordered(order({ type: 'read', vector: { of: 'gradient' }, start: 4, count: 5 })), {
    code: 'message-malformed',
  })
  assert.throws(
    () => fresh().ordered(order({ type: 'read', vector: { of: 'slot', state: 0, index: 0 }, start: 0, count: 1 })),
    { code: 'message-malformed' },
  )
  assert.throws(() => fresh().received(new Uint8Array(4)), { code: 'message-unexpected' })
  assert.throws(
    () => new ShardHost().ordered(order({ ...JSON.parse(setup), layout: { ...layout, total: 4, trained: 4 } })),
    { code: 'message-malformed' },
  )
  const host = fresh()
  host.ordered(order({ type: 'write', vector: { of: 'gradient' }, start: 2, count: 2 }))
  assert.throws(() => host.ordered(order({ type: 'mean', targets: 1 })), { code: 'message-unexpected' })
  host.received(new Uint8Array(Float32Array.of(3, 4).buffer))
  const read = host.ordered(order({ type: 'read', vector: { of: 'gradient' }, start: 1, count: 4 })) ?? assert.fail()
  assert.deepEqual([...new Float32Array(read.slice().buffer)], [0, 3, 4, 0])
})

/** Where processes dial without a whole coordinator. */
async function listen(answerMs?: number): Promise<{
  readonly processes: ShardProcesses
  readonly address: string
  /** to processes, so far */
  readonly sentBytes: () => number
}> {
  const listener = new WebSocketServer({ port: 0, host: '127.0.0.1' })
  after(() => listener.close())
  await once(listener, 'listening')
  const processes = new ShardProcesses(answerMs === undefined ? {} : { answerMs })
  const wires: Socket[] = []
  listener.on('connection', (socket, { url = '', socket: wire }) => {
    wires.push(wire)
    processes.admit(socket, readRange(new URL(url, 'http://here').searchParams.get('range') ?? ''))
  })
  const sentBytes = (): number => wires.reduce((sum, { bytesWritten }) => sum + bytesWritten, 0)
  return { processes, address: `http://127.0.0.1:${(listener.address() as AddressInfo).port}`, sentBytes }
}

async function arrived(processes: ShardProcesses): Promise<void> {
  while (processes.complete() === undefined) await new Promise((resolve) => setImmediate(resolve))
}

test('a process that answers nothing is given up', async () => {
  const { processes, address } = await listen(200)
  const deaf = new WebSocket(`${address.replace('http', 'ws')}/?range=0/1`)
  after(() => deaf.terminate())
  await arrived(processes)
  const spec = parseModelSpec({ input: [6], layers: [{ type: 'linear', name: 'fc', out: 4 }] })
  const form: VersionForm = { spec, layout: parameterLayout(spec), optimizer: { type: 'sgd', lr: 1 } }
  const server = new ParameterServer({ form, clipNorm: undefined, delayCompensation: undefined, cores: 1, processes })
  await assert.rejects(
    server.load({ version: { v: 0, id: versionId('0'.repeat(64)) }, ...initialVersionState(spec, form.optimizer, 1) }),
    /expected all processes of the parameter server/,
  )
  assert.equal(processes.complete(), undefined)
})

const ref = (v: number): VersionRef => ({ v, id: versionId(v.toString(16).padStart(64, '0')) })

test('processes make the same bytes as one thread, late pushes and statistics included', async () => {
  const spec = parseModelSpec({
    input: [1, 28, 28],
    layers: [
      { type: 'conv2d', name: 'conv', out: 4, kernel: 5 },
      { type: 'batchnorm2d', name: 'norm' },
      { type: 'flatten' },
      { type: 'linear', name: 'fc', out: 20 },
    ],
  })
  const form: VersionForm = {
    spec,
    layout: parameterLayout(spec),
    optimizer: { type: 'adamw', lr: 0.01, decay: 'matrices' },
  }
  const { processes, address } = await listen()
  await Promise.all(['0/3', '1/3', '2/3'].map((range) => shardProcess(address, range)))
  await arrived(processes)
  const [alone, spread] = await Promise.all(
    [undefined, processes].map(async (places) => {
      const server = new ParameterServer({
        form,
        clipNorm: 0.5,
        delayCompensation: 0.04,
        cores: 2,
        ...(places === undefined ? {} : { processes: places }),
      })
      await server.load({ version: ref(0), ...initialVersionState(spec, form.optimizer, 1) })
      for (let v = 1; v <= 4; v++) {
        for (const part of [1, 2]) {
          const sum = Float32Array.from({ length: form.layout.total }, (_, i) => Math.sin(i * part + v))
          await server.add({
            gradient: gradientOf(sum, form.layout.trained),
            targets: 5,
            base: ref(Math.max(0, v - part)),
            damping: 1 / part,
          })
        }
        await server.close(ref(v), 10)
      }
      const { bytes } = await server.encode()
      const { place } = server
      await server.unload()
      return { place, digest: digest(bytes) }
    }),
  )
  assert.deepEqual([alone?.place, spread?.place], ["the coordinator's own thread", '3 processes'])
  assert.equal(spread?.digest, alone?.digest)
})

/** More than two runs of an encoded vector, cut by three ranges within them. */
const LARGE = parseModelSpec({ input: [784], layers: [{ type: 'linear', name: 'fc', out: 200 }] })

for (const encoding of ['f16', 'int8', 'sparse2'] as const)
  test(`pushes in ${encoding} reach processes as they came, and make the same bytes as in one thread`, async () => {
    const optimizer = { type: 'sgd', lr: 0.1 } as const
    const form: VersionForm = { spec: LARGE, layout: parameterLayout(LARGE), optimizer }
    const { total } = form.layout
    const { processes, address, sentBytes } = await listen()
    await Promise.all(['0/3', '1/3', '2/3'].map((range) => shardProcess(address, range)))
    await arrived(processes)
    const sum = Float32Array.from({ length: total }, (_, i) => Math.sin(i) * (i % 1000))
    const body = encodeVector(sum, encoding)
    const gradient = readPush(body, gradientForm(form.layout, [], encoding), form.layout.trained)
    const ways = { clipNorm: undefined, delayCompensation: undefined, cores: 1 }
    const made: string[] = []
    for (const places of [{}, { processes }]) {
      const server = new ParameterServer({ form, ...ways, ...places })
      await server.load({ version: ref(0), ...initialVersionState(LARGE, optimizer, 1) })
      const before = sentBytes()
      await server.add({ gradient, targets: 5, base: ref(0), damping: 1 })
      // a run that two ranges share goes to both
      assert.ok(sentBytes() - before < 2 * body.byteLength + 3000, `${sentBytes() - before} bytes were sent`)
      await server.close(ref(1), 5)
      made.push(digest((await server.encode()).bytes))
      await server.unload()
    }
    assert.equal(made[1], made[0])
  })

test('a shard decodes no more numbers than were announced, and none beyond its range', () => {
  const layout = { total: 8, trained: 8, entries: [{ name: 'w', shape: [8], offset: 0, length: 8, kind: 'trained' }] }
  const setup = { type: 'setup', optimizer: { type: 'sgd', lr: 1 }, versions: 2, compensated: false, layout }
  const host = new ShardHost()
  host.ordered(JSON.stringify(setup))
  const announce = (order: object): unknown =>
    host.ordered(JSON.stringify({ type: 'decode', encoding: 'f16', length: 6, skip: 2, start: 1, count: 4, ...order }))
  const bytes = encodeVector(Float32Array.of(1, 2, 3, 4, 5, 6), 'f16')
  for (const bad of [{ start: 5 }, { count: 9 }, { length: 2 ** 30 }, { skip: -1 }, { encoding: 'f8' }])
    assert.throws(() => announce(bad), { code: 'message-malformed' })
  announce({ skip: 3 })
  assert.throws(() => host.received(bytes), { code: 'message-malformed' })
  announce({})
  assert.throws(() => host.received(bytes.subarray(1)), { code: 'gradient-shape' })
  announce({})
  host.received(bytes)
  const read = JSON.stringify({ type: 'read', vector: { of: 'gradient' }, start: 0, count: 8 })
  const seen = host.ordered(read) ?? assert.fail()
  assert.deepEqual([...new Float32Array(seen.slice().buffer)], [0, 3, 4, 5, 6, 0, 0, 0])
})
