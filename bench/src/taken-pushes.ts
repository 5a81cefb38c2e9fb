// What taking a push in costs the coordinator's own processor, with its parameter server in four processes: a sparse
// push that goes on to them as it came, beside one that goes on as f32, and beside no processes. Without HTTP.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { setImmediate } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { ParameterServer, readPushBody, readRange, ShardProcesses } from '@starling-grid/coordinator/shell'
import {
  encodeVector,
  gpt,
  gradientForm,
  initialVersionState,
  type ModelSpec,
  outerOptimizer,
  parameterLayout,
  resnet,
  type VersionForm,
} from '@starling-grid/model'
import { genesis, jobId, random32, systemClock } from '@starling-grid/protocol'
import { type WebSocket, WebSocketServer } from 'ws'
import { type BenchRow, type Contender, race } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
const SHARDS = 4
const ENCODING = 'sparse2'
/** ResNet-20, and nanoGPT's model of Shakespeare's letters */
const MODELS = [resnet(), gpt({ blocks: 6, heads: 6, channels: 384, context: 256, vocab: 65 })]
/** numbers of all pushes of a round of one contender */
const [NUMBERS, SHORT_NUMBERS] = [40e6, 1e6]
const TARGETS = 2048
const OPTIMIZER = { type: 'sgd', lr: 0.1 } as const
const LOCAL = { innerSteps: 16, outerLr: 0.7, outerMomentum: 0.9 }
const VERSION = genesis(jobId('pushes'), 'model', 1)

export async function pushRows(options: SuiteOptions): Promise<BenchRow[]> {
  const elsewhere = await ProcessesElsewhere.open()
  try {
    const rows: BenchRow[] = []
    for (const spec of MODELS) rows.push(await pushRow(spec, elsewhere.processes, options))
    return rows
  } finally {
    elsewhere.close()
  }
}

async function pushRow(spec: ModelSpec, processes: ShardProcesses, { rounds, short }: SuiteOptions): Promise<BenchRow> {
  const form = { spec, layout: parameterLayout(spec), optimizer: OPTIMIZER, outer: outerOptimizer(LOCAL) }
  const { total } = form.layout
  const random = random32(1)
  const values = Float32Array.from({ length: total }, () => random() / 2 ** 32 - 0.5)
  const body = encodeVector(values, ENCODING)
  const pushes = Math.ceil((short ? SHORT_NUMBERS : NUMBERS) / total)
  const [spread, alone] = [await loaded(form, { processes }), await loaded(form, {})]
  const taking = (server: ParameterServer, isDecodedHere: boolean): Contender =>
    cpuOf(pushes, { form, body, server, isDecodedHere })
  const name = `processor time of a push of ${total} numbers in ${ENCODING}, ${SHARDS} shards elsewhere`
  const row = await race(
    { name, adapter: 'loopback', unit: 'ms', better: 'less' },
    taking(spread, false),
    { 'passed on as f32': taking(spread, true), 'no shards elsewhere': taking(alone, true) },
    rounds,
  )
  for (const server of [spread, alone]) await server.unload()
  return { ...row, counts: { 'bytes of a push': body.byteLength } }
}

async function loaded(form: VersionForm, places: { readonly processes?: ShardProcesses }): Promise<ParameterServer> {
  const ways = { clipNorm: undefined, rounds: true, delayCompensation: undefined, cores: availableParallelism() }
  const server = new ParameterServer({ form, ...ways, ...places })
  await server.load({ version: VERSION, ...initialVersionState(form.spec, form.optimizer, 1, form.outer) })
  return server
}

interface IntakeParts {
  readonly form: VersionForm
  readonly body: Uint8Array
  readonly server: ParameterServer
  /** shards elsewhere get f32 */
  readonly isDecodedHere: boolean
}

/** As a run takes a push in: it is read, with its norm, and added. */
async function takeIn({ form, body, server, isDecodedHere }: IntakeParts): Promise<void> {
  const { gradient } = await readPushBody(
    body,
    { form: gradientForm(form.layout, [], ENCODING), layout: form.layout },
    systemClock,
  )
  const { runs, squares } = gradient
  const added = isDecodedHere ? { runs, squares } : gradient
  await server.add({ gradient: added, targets: TARGETS, base: VERSION, damping: 1 })
}

/** ms of this process, of all its threads, for one push. */
function cpuOf(pushes: number, intake: IntakeParts): Contender {
  return async () => {
    const before = process.cpuUsage()
    for (let i = 0; i < pushes; i++) await takeIn(intake)
    const { user, system } = process.cpuUsage(before)
    return (user + system) / 1000 / pushes
  }
}

/** `starling ps`, once for each range. */
class ProcessesElsewhere {
  readonly processes = new ShardProcesses()
  readonly #listener: WebSocketServer
  readonly #children: readonly ChildProcess[]

  private constructor(listener: WebSocketServer, port: number) {
    this.#listener = listener
    listener.on('connection', (socket: WebSocket, { url = '' }) =>
      this.processes.admit(socket, readRange(new URL(url, 'http://here').searchParams.get('range') ?? '')),
    )
    this.#children = Array.from({ length: SHARDS }, (_, i) =>
      spawn(
        process.execPath,
        [STARLING, 'ps', `http://127.0.0.1:${port}`, '--range', `${i}/${SHARDS}`, '--token', 'none is asked for'],
        { stdio: 'ignore' },
      ),
    )
  }

  static async open(): Promise<ProcessesElsewhere> {
    const listener = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: false })
    await once(listener, 'listening')
    const address = listener.address()
    if (address === null || typeof address === 'string') throw new Error('expected a port, got none')
    const made = new ProcessesElsewhere(listener, address.port)
    while (made.processes.complete() === undefined) {
      const ended = made.#children.find(({ exitCode }) => exitCode !== null)
      if (ended !== undefined) throw new Error(`starling ps ended with code ${ended.exitCode}`)
      await setImmediate()
    }
    return made
  }

  close(): void {
    for (const child of this.#children) child.kill()
    for (const socket of this.#listener.clients) socket.terminate()
    this.#listener.close()
  }
}
