// A volunteer in async mode: what it pulls, computes and pushes for a grant, and when it asks for more.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  embeddingTables,
  gradientForm,
  inputTables,
  parameterLayout,
  parseModelSpec,
  readGradient,
  readRowNumbers,
  writeRows,
} from '@starling-grid/model'
import {
  type BlockId,
  memberId,
  type MessageTo,
  type PushHeader,
  type ToCoordinator,
  versionId,
  systemClock,
} from '@starling-grid/protocol'
import { type Executor, LocalVersion } from '@starling-grid/volunteer'
import { AsyncMode, type AsyncParts } from '../src/async/async-mode.ts'
import { pullRows } from '../src/async/pull-rows.ts'
import { Compute } from '../src/compute.ts'
import type { Batch } from '../src/graph/executor.ts'

const spec = parseModelSpec({
  input: [2],
  layers: [
    { type: 'embedding', name: 'wte', vocab: 40, channels: 3 },
    { type: 'linear', name: 'fc', out: 40 },
  ],
})
const layout = parameterLayout(spec)
const [table = assert.fail()] = embeddingTables(spec, layout)
const grant: MessageTo<'grant'> = {
  type: 'grant',
  fence: 1,
  generation: 1,
  modeEpoch: 4,
  base: { v: 9, id: versionId('9'.repeat(64)) },
  deadlineMs: 1000,
  leases: [
    { block: '0:3' as BlockId, leaseEpoch: 2 },
    { block: '0:5' as BlockId, leaseEpoch: 1 },
  ],
}

const ALL = Float32Array.from({ length: layout.total }, (_, i) => i + 1)

/** Gradient: the loaded parameters where a token of the batch or anything but the table is concerned. */
class TokenExecutor implements Executor {
  readonly adapter = { name: 'none', vendor: 'test', software: true, executor: 'reference' } as const
  #parameters = new Float32Array(layout.total)

  loadParameters(flat: Float32Array): void {
    this.#parameters = flat.slice()
  }

  async gradient({ x, samples }: Batch, into: Float32Array) {
    into.set(this.#parameters)
    for (let row = 0; row < 40; row++)
      if (!x.includes(row as never)) into.fill(0, table.offset + 3 * row, table.offset + 3 * row + 3)
    return { lossSum: 2 * samples, targets: samples, correct: 0 }
  }

  async evaluate() {
    return assert.fail('nothing is validated here')
  }

  async predict() {
    return assert.fail('nothing is predicted here')
  }

  destroy(): void {}
}

interface Desk {
  readonly mode: AsyncMode
  readonly pushed: { readonly push: PushHeader; readonly body: Uint8Array }[]
  readonly sent: ToCoordinator[]
  readonly counted: [number, number][]
  /** parameters of the table that were pulled, by row: true where they came */
  readonly pulled: boolean[][]
}

function deskFor(
  tokens: readonly number[],
  options: {
    readonly verdict?: string
    readonly beforePull?: () => void
    readonly rounds?: AsyncParts['rounds']
  } = {},
): Desk {
  const [pushed, sent, counted, pulled]: [Desk['pushed'], ToCoordinator[], [number, number][], boolean[][]] = [
    [],
    [],
    [],
    [],
  ]
  const compute = new Compute(
    new TokenExecutor(),
    new LocalVersion({ spec, optimizer: { type: 'sgd', lr: 1 }, clipNorm: undefined }),
    systemClock,
  )
  const mode = new AsyncMode({
    encoding: 'f32',
    rounds: options.rounds,
    pullRoundBase: async ({ version }) => ({ version, parameters: ALL, unserved: [] }),
    clock: systemClock,
    self: memberId('me'),
    compute,
    layout,
    tables: [table],
    lookups: inputTables(spec, layout),
    batches: {
      isLoading: false,
      of: async () => ({ samples: tokens.length, x: Int32Array.from(tokens), y: new Int32Array(tokens.length) }),
    },
    pull: async (version, rows) => {
      options.beforePull?.()
      const named =
        rows === undefined
          ? { version, parameters: ALL }
          : await pullRows(version, rows, {
              layout,
              ask: async ({ parts, numbers }) =>
                writeRows(ALL, layout, readRowNumbers(numbers, gradientForm(layout, parts))),
            })
      pulled.push(Array.from({ length: 40 }, (_, row) => named.parameters[table.offset + 3 * row] !== 0))
      return named
    },
    push: async (push, gradient) => {
      pushed.push({ push, body: gradient.slice() })
      return { verdict: options.verdict ?? 'received', message: '' }
    },
    send: (message) => sent.push(message),
    onActivity: () => undefined,
    onPushed: (samples, loss) => counted.push([samples, loss]),
    onFatal: (error) => assert.fail(String(error)),
  })
  return { mode, pushed, sent, counted, pulled }
}

test('a grant is computed at its base, pushed with its leases, and followed by a request for more', async () => {
  const { mode, pushed, sent, counted } = deskFor(Array.from({ length: 40 }, (_, i) => i))
  await mode.granted(grant)
  const [{ push, body } = assert.fail()] = pushed
  assert.deepEqual(push, {
    incarnation: 'me',
    modeEpoch: 4,
    base: grant.base,
    leaseEpoch: grant.leases[0]?.leaseEpoch,
    blocks: grant.leases.length,
    samples: 40,
    lossSum: 80,
    targets: 40,
    correct: 0,
  })
  assert.deepEqual(
    new Float32Array(body.buffer),
    Float32Array.from({ length: layout.total }, (_, i) => i + 1),
  )
  assert.deepEqual(sent, [{ type: 'lease-request', modeEpoch: 4 }])
  assert.deepEqual(counted, [[40, 2]])
})

test('of an embedding that a batch touches in few places, only the rows of its tokens are pushed', async () => {
  const { mode, pushed } = deskFor([3, 17, 3, 39])
  await mode.granted(grant)
  const [{ push, body } = assert.fail()] = pushed
  assert.deepEqual(push.sparse, [{ name: 'wte.weight', rows: 3 }])
  assert.equal(body.byteLength, 4 * (layout.total - 37 * 3 + 3))
  const vector = new Float32Array(layout.total)
  readGradient(body, gradientForm(layout, push.sparse), vector)
  const rows = Array.from({ length: 40 }, (_, row) => vector[table.offset + 3 * row] !== 0)
  assert.deepEqual(
    rows.flatMap((touched, row) => (touched ? [row] : [])),
    [3, 17, 39],
  )
})

test('of an embedding table that is only looked up, each batch pulls the rows of its tokens', async () => {
  const tokens = [3, 17, 3, 39]
  const { mode, pulled, pushed } = deskFor(tokens)
  await mode.granted(grant)
  tokens.splice(0, 4, 5, 6, 5, 5)
  await mode.granted(grant)
  const rows = pulled.map((there) => there.flatMap((came, row) => (came ? [row] : [])))
  assert.deepEqual(rows, [
    [3, 17, 39],
    [5, 6],
  ])
  assert.deepEqual(
    pushed.map(({ push }) => push.sparse),
    [[{ name: 'wte.weight', rows: 3 }], [{ name: 'wte.weight', rows: 2 }]],
    'the second batch computed with its own rows',
  )
  const others = Array.from({ length: 40 }, (_, i) => i)
  const whole = deskFor(others)
  await whole.mode.granted(grant)
  assert.ok(whole.pulled[0]?.every(Boolean))
})

test('a push that is refused counts for nothing, and work is asked for again', async () => {
  const { mode, sent, counted } = deskFor([1], { verdict: 'base-stale' })
  await mode.granted(grant)
  assert.deepEqual([sent.length, counted], [1, []])
})

test('when the mode ends while a version is fetched, nothing is pushed and nothing asked', async () => {
  const { mode, pushed, sent } = deskFor([1], { beforePull: () => mode.stop() })
  await mode.granted(grant)
  assert.deepEqual([pushed, sent], [[], []])
})

/** Rounds whose one step lasts until they are cut. */
function endless(learned: number): AsyncParts['rounds'] {
  return {
    fragments: undefined,
    contribution: ALL,
    run: ({ cut }) =>
      new Promise((resolve) => {
        const sums = { lossSum: 1, targets: learned, correct: 0 }
        const result = learned === 0 ? undefined : { learned, samples: learned, sums, finite: true }
        cut?.addEventListener('abort', () => resolve(result))
      }),
  }
}

test('who leaves in the middle of a round pushes what it learned, and asks for nothing more', async () => {
  const { mode, pushed, sent } = deskFor([1], { rounds: endless(1) })
  const working = mode.granted({ ...grant, innerSteps: 2 })
  await new Promise((resolve) => setTimeout(resolve, 0))
  await mode.leave()
  await working
  assert.deepEqual(
    pushed.map(({ push: { blocks, samples, leaseEpoch } }) => [blocks, samples, leaseEpoch]),
    [[1, 1, 2]],
  )
  assert.deepEqual(sent, [])
  await mode.granted({ ...grant, innerSteps: 2 })
  assert.equal(pushed.length, 1, 'it takes no more work')
})

test('who leaves before its round learned anything pushes nothing', async () => {
  const { mode, pushed, sent } = deskFor([1], { rounds: endless(0) })
  void mode.granted({ ...grant, innerSteps: 2 })
  await new Promise((resolve) => setTimeout(resolve, 0))
  await mode.leave()
  assert.deepEqual([pushed, sent], [[], []])
})
