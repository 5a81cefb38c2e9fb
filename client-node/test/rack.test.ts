// Machines of a rack as one member: real sockets of this machine, and executors of every kind behind them.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import { after, test } from 'node:test'
import { initialParameters, lenet5, type ModelSpec, parameterCount, parseModelSpec } from '@starling-grid/model'
import { type Clock, GridError, isGridError, systemClock } from '@starling-grid/protocol'
import { writeRackMessage } from '@starling-grid/protocol/rack'
import { createReferenceExecutor, type Executor } from '@starling-grid/volunteer'
import { executorCases, expectClose, noise } from '@starling-grid/volunteer/testing'
import { executorOpener, type ExecutorOpener } from '../src/executors.ts'
import { lendMachine, type LentMachine } from '../src/rack/lent-machine.ts'
import { machinesIn, nameOf, rackKeyIn } from '../src/rack/machine-address.ts'
import { openRackMachine, type RackMachine } from '../src/rack/rack-machine.ts'
import { dialInRack } from '../src/rack/rack-socket.ts'
import { withMachines } from '../src/rack/rack.ts'

const KEY = randomBytes(32)
const HOST = '127.0.0.1'
const MAX_BYTES = 500e6
const SPEC = lenet5()
const BATCH = { samples: 12, x: noise(12 * 784, 1), y: Int32Array.from({ length: 12 }, (_, i) => i % 10) }

const closing: (() => unknown)[] = []
after(async () => {
  for (const close of closing.toReversed()) await close()
})

interface Lent {
  readonly machine: LentMachine
  readonly said: string[]
}

async function lent({
  openExecutor = executorOpener({ executor: 'reference' }),
  port = 0,
  key = KEY,
}: { openExecutor?: ExecutorOpener; port?: number; key?: Buffer } = {}): Promise<Lent> {
  const said: string[] = []
  const options = {
    host: HOST,
    port,
    key,
    maxBytes: MAX_BYTES,
    openExecutor,
    say: (text: string) => void said.push(text),
  }
  const machine = await lendMachine(options)
  closing.push(() => machine.close())
  return { machine, said }
}

function wanted(spec: ModelSpec = SPEC, bounds: Parameters<ExecutorOpener>[2] = undefined) {
  return { spec, blockSamples: 16, bounds }
}

function dial({ machine }: Lent, spec?: ModelSpec, key = KEY): Promise<RackMachine> {
  return openRackMachine(wanted(spec), { at: { host: HOST, port: machine.port }, key })
}

async function gradientOf(executor: Executor, batch = BATCH): Promise<{ gradient: Float32Array; lossSum: number }> {
  executor.loadParameters(initialParameters(SPEC, 1))
  const gradient = new Float32Array(parameterCount(SPEC))
  return { gradient, lossSum: (await executor.gradient(batch, gradient)).lossSum }
}

/** Resolves when `state` holds; looked at again and again, for as long as the test may take. */
async function until(state: () => boolean): Promise<void> {
  while (!state())
    await new Promise((resolve) => {
      setTimeout(resolve, 20)
    })
}

/** A gradient comes whole from another machine. */
const PIECES = 'pieces of a gradient are handed out in order, as they stay, before the rest is there'
const cases = executorCases.filter(({ name }) => name !== PIECES)
assert.equal(cases.length, executorCases.length - 1)

for (const { name, run } of cases)
  test(`on another machine: ${name}`, async () => {
    const opened: RackMachine[] = []
    try {
      await run(async (spec) => {
        const machine = await dial(await lent(), spec)
        opened.push(machine)
        return machine
      })
    } finally {
      for (const machine of opened) machine.destroy()
    }
  })

const goneOf = ({ said }: Lent): number => said.filter((text) => text.includes('is gone')).length

test('a volunteer and two machines give the gradient of one, and say who computes', async () => {
  const [one, two, said] = [await lent(), await lent(), [] as string[]]
  const machines = [one, two].map(({ machine }) => ({ host: HOST, port: machine.port }))
  const open = withMachines(executorOpener({ executor: 'reference' }), {
    machines,
    key: KEY,
    say: (t) => void said.push(t),
  })
  const together = await open(SPEC, 16, undefined)
  const [ours, alone] = await Promise.all([gradientOf(together), gradientOf(createReferenceExecutor(SPEC))])
  expectClose(ours.gradient, alone.gradient, 1e-5, 'gradient')
  expectClose([ours.lossSum], [alone.lossSum], 1e-5, 'loss')
  assert.match(together.adapter.name, /^3 software adapters: /)
  assert.ok(together.adapter.name.includes('(33 %)'), together.adapter.name)
  together.destroy()
  await until(() => goneOf(one) === 1 && goneOf(two) === 1)
})

test('a machine that goes in a step leaves its samples to the others, and returns when it is back', async () => {
  const own = executorOpener({ executor: 'reference' })
  let isBegun = (): void => undefined
  const begun = new Promise<void>((resolve) => {
    isBegun = resolve
  })
  const hangs: ExecutorOpener = async (...order) => {
    const executor = await own(...order)
    return Object.assign(executor, {
      gradient: () => {
        isBegun()
        return new Promise<never>(() => undefined)
      },
    })
  }
  const [first, said] = [await lent({ openExecutor: hangs }), [] as string[]]
  const { port } = first.machine
  const machines = [{ host: HOST, port }]
  const together = await withMachines(own, { machines, key: KEY, say: (t) => void said.push(t) })(SPEC, 16, undefined)
  const alone = await gradientOf(createReferenceExecutor(SPEC))
  const step = gradientOf(together)
  await begun
  void first.machine.close() // its computation never ends
  expectClose((await step).gradient, alone.gradient, 1e-5, 'gradient of the step in which it went')
  assert.ok(
    said.some((text) => text.includes('is left out from now on')),
    said.join('\n'),
  )
  const again = await lent({ port })
  await until(() => said.filter((text) => text.includes('computes from now on')).length === 2)
  const later = await gradientOf(together)
  expectClose(later.gradient, alone.gradient, 1e-5, 'gradient when it is back')
  assert.match(together.adapter.name, /^2 software adapters/)
  together.destroy()
  await until(() => goneOf(again) === 1)
})

test('a machine that is not there is named, and its volunteer computes alone until it is', async () => {
  const said: string[] = []
  const [gone, own] = [await lent(), executorOpener({ executor: 'reference' })]
  const { port } = gone.machine
  await gone.machine.close()
  const machines = [{ host: HOST, port }]
  const together = await withMachines(own, { machines, key: KEY, say: (t) => void said.push(t) })(SPEC, 16, undefined)
  assert.match(
    said.join('\n'),
    /does not compute: expected a machine that is lent at 127.0.0.1:\d+.*it takes part when/,
  )
  assert.ok((await gradientOf(together)).lossSum > 0)
  await lent({ port })
  await until(() => said.some((text) => text.includes('computes from now on')))
  together.destroy()
})

test('who has another key is not let in, on either side', async () => {
  const there = await lent()
  const refused = (error: unknown): boolean => isGridError(error) && error.code === 'link-lost'
  await assert.rejects(dial(there, SPEC, randomBytes(32)), refused)
  assert.deepEqual(there.said, [])
  const plain = connect(there.machine.port, HOST)
  plain.end('GET /starling-rack/1 HTTP/1.1\r\n\r\n')
  plain.resume()
  await once(plain, 'close')
  const machine = await dial(there)
  assert.ok((await gradientOf(machine)).lossSum > 0)
  machine.destroy()
})

test('a machine computes for one volunteer at a time, and then for the next', async () => {
  const there = await lent()
  const first = await dial(there)
  await assert.rejects(dial(there), (error) => isGridError(error) && error.code === 'grid-full')
  assert.ok((await gradientOf(first)).lossSum > 0)
  first.destroy()
  await until(() => goneOf(there) === 1)
  const second = await dial(there)
  assert.ok((await gradientOf(second)).lossSum > 0)
  second.destroy()
})

test('what no volunteer sends ends its connection, with a sentence, and the next is served', async () => {
  const there = await lent()
  const at = { host: HOST, port: there.machine.port }
  const bad: (Uint8Array | string)[] = [
    'text',
    new Uint8Array(3),
    writeRackMessage({ type: 'load' }),
    writeRackMessage({ type: 'open', model: { layers: 7 }, blockSamples: 0, hasFrozen: false } as never),
    writeRackMessage({ type: 'frozen', name: 'w' }),
  ]
  for (const [i, data] of bad.entries()) {
    const socket = await dialInRack(at, { key: KEY, maxBytes: MAX_BYTES })
    socket.send(data)
    await once(socket, 'close')
    await until(() => goneOf(there) === i + 1)
  }
  assert.equal(there.said.filter((text) => text.includes('is sent away')).length, bad.length)
  const machine = await dial(there)
  const short = { ...BATCH, x: BATCH.x.subarray(1) }
  machine.loadParameters(initialParameters(SPEC, 1))
  await assert.rejects(machine.gradient(short, new Float32Array(parameterCount(SPEC))), GridError)
  assert.ok((await gradientOf(machine)).lossSum > 0)
  machine.destroy()
})

test('a machine whose answer does not fit the model counts as gone', async () => {
  const own = executorOpener({ executor: 'reference' })
  const short: ExecutorOpener = async (...order) => {
    const executor = await own(...order)
    return Object.assign(executor, { predict: async () => Float32Array.of(1) })
  }
  const there = await lent({ openExecutor: short })
  const machine = await dial(there)
  machine.loadParameters(initialParameters(SPEC, 1))
  await assert.rejects(
    machine.predict(BATCH.x, BATCH.samples),
    (error) => isGridError(error) && error.code === 'device-lost' && error.message.includes('expected 120 floats'),
  )
  await machine.gone
})

test('a model that a machine cannot compute is said, and asked of it once', async () => {
  const [said, sleeps] = [[] as string[], [] as number[]]
  const clock: Clock = {
    ...systemClock,
    sleep: (ms, signal) => {
      sleeps.push(ms)
      return systemClock.sleep(ms, signal)
    },
  }
  const cannot: ExecutorOpener = () => Promise.reject(new GridError('adapter-limit', 'expected less, got this model'))
  const there = await lent({ openExecutor: cannot })
  const machines = [{ host: HOST, port: there.machine.port }]
  const parts = { machines, key: KEY, say: (text: string) => void said.push(text), clock }
  const together = await withMachines(executorOpener({ executor: 'reference' }), parts)(SPEC, 16, undefined)
  assert.match(said.join('\n'), /expected less, got this model \(adapter-limit\); it takes no part in this job/)
  assert.equal(sleeps.length, 1, 'the job waits for its machines, and none is waited for again')
  assert.ok((await gradientOf(together)).lossSum > 0)
  together.destroy()
})

test('frozen parameters are fetched from the volunteer, one at a time', async () => {
  const asked: string[] = []
  const openExecutor: ExecutorOpener = async (spec, blockSamples, bounds) => {
    const values = await bounds?.frozen?.read('head.weight')
    assert.deepEqual(values, Float32Array.of(1, 2, 3))
    await assert.rejects(bounds?.frozen?.read('gone') ?? Promise.resolve(), /expected a shard/)
    return executorOpener({ executor: 'reference' })(spec, blockSamples, undefined)
  }
  const there = await lent({ openExecutor })
  const read = async (name: string): Promise<Float32Array> => {
    asked.push(name)
    if (name === 'gone') throw new GridError('dataset-unreadable', 'expected a shard, got none')
    return Float32Array.of(1, 2, 3)
  }
  const bounds = { maxBytes: MAX_BYTES, onDeviceLost: () => undefined, frozen: { read } }
  const parts = { at: { host: HOST, port: there.machine.port }, key: KEY }
  const machine = await openRackMachine(wanted(SPEC, bounds), parts)
  assert.deepEqual(asked, ['head.weight', 'gone'])
  machine.destroy()
})

test('models whose vectors have no room are refused before a machine is asked', async () => {
  const small = parseModelSpec({ input: [8], layers: [{ type: 'linear', name: 'fc', out: 4 }], loss: 'cross_entropy' })
  const parts = { machines: [{ host: HOST, port: 1 }], key: KEY, say: () => undefined }
  const open = withMachines(executorOpener({ executor: 'reference' }), parts)
  const bounds = { maxBytes: 100, onDeviceLost: () => undefined }
  await assert.rejects(open(small, 16, bounds), (error) => isGridError(error) && error.code === 'own-limit')
})

test('machines and keys are read as people write them, and refused with what was meant', () => {
  assert.deepEqual(machinesIn('10.0.0.2, rack-3:9000,[fd00::1]:80').map(nameOf), [
    '10.0.0.2:8795',
    'rack-3:9000',
    '[fd00::1]:80',
  ])
  for (const wrong of ['', 'a b', 'http://x', 'x:0', 'x:70000', '[zz]', 'x,x'])
    assert.throws(
      () => machinesIn(wrong),
      (error) => isGridError(error) && error.code === 'usage',
      wrong,
    )
  assert.equal(rackKeyIn(`${'0a'.repeat(16)}\n`).length, 16)
  for (const wrong of ['', 'ab', 'x'.repeat(40), 'a'.repeat(33)])
    assert.throws(() => rackKeyIn(wrong), /expected a key of the rack with at least 32 hexadecimal digits/)
})
