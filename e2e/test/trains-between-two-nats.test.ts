// Two headless volunteers in homes behind NAT train together: with STUN alone where a router keeps one port for all
// peers, through TURN where it does not, and through the coordinator where there is no TURN server. The STUN
// and TURN server is coturn, the routers are those of Linux (two-homes.ts).
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import type { RunView } from '@starling-grid/protocol'
import { type Nat, noHomes, type Resident, SERVER, TwoHomes } from './two-homes.ts'

const STEPS = 12
const PORT = 8790
const URL = `http://${SERVER}:${PORT}`
const TOKEN = 'the-owner-token-of-tests'
const SECRET = 'the-secret-of-turn'
const LIMIT_MS = 240_000

const JOB = {
  name: 'Between homes',
  owner: 'tests',
  purpose: 'To be trained by two homes.',
  model: { name: 'linear', input: [1, 28, 28], layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }] },
  dataset: { source: 'digits' },
  optimizer: { type: 'sgd', lr: 0.01 },
  blockSamples: 8,
  batchBlocks: 4,
  volunteers: { min: 2 },
  stop: { epochs: 1, steps: STEPS },
  seed: 3,
  mode: 'ring',
  exchange: 'ring',
}

const folder = await mkdtemp(join(tmpdir(), 'starling-homes-'))
after(() => rm(folder, { recursive: true, force: true }))
const jobFile = join(folder, 'job.json')
await writeFile(jobFile, JSON.stringify(JOB))

async function until(what: string, resident: Resident, isThere: () => boolean): Promise<void> {
  const limit = Date.now() + LIMIT_MS
  while (!isThere()) {
    const { exitCode } = resident.process
    assert.ok(exitCode === null && Date.now() < limit, `expected ${what}, got:\n${resident.lines.join('\n')}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** What is asked in the street, as its owner does. */
async function asked(homes: TwoHomes, args: readonly string[]): Promise<RunView> {
  const command = homes.starling('street', ['job', ...args, '--url', URL, '--json'], { STARLING_TOKEN: TOKEN })
  await once(command.process, 'close')
  return JSON.parse(command.lines.findLast((line) => line.startsWith('{')) ?? '{}') as RunView
}

interface Trained {
  readonly run: RunView
  /** of coturn */
  readonly log: readonly string[]
}

async function train(nat: Nat, server: 'stun' | 'turn'): Promise<Trained> {
  const homes = TwoHomes.build(nat)
  try {
    const coturn = homes.start('street', 'turnserver', [
      ...['-n', '--no-cli', '--no-tls', '--no-dtls', '--log-file=stdout', '--simple-log', '--verbose'],
      ...[`--listening-ip=${SERVER}`, `--relay-ip=${SERVER}`, '--realm=starling', `--pidfile=${folder}/turn.pid`],
      ...[`--userdb=${folder}/turn-${nat}-${server}.db`],
      ...(server === 'stun' ? ['--stun-only'] : ['--use-auth-secret', `--static-auth-secret=${SECRET}`]),
    ])
    await until('coturn to listen', coturn, () => coturn.lines.some((line) => /listener opened on/i.test(line)))
    const turn = server === 'turn' ? [`turn:${SERVER}:3478`, '--turn-secret', SECRET] : []
    const coordinator = homes.starling(
      'street',
      [
        ...['start', '--json', '--host', SERVER, '--port', String(PORT), '--web-root', folder],
        ...[
          '--data-dir',
          await mkdtemp(join(folder, `${nat}-${server}-`)),
          '--ice-server',
          `stun:${SERVER}:3478`,
          ...turn,
        ],
      ],
      { STARLING_TOKEN: TOKEN },
    )
    await until('the coordinator to listen', coordinator, () => coordinator.lines.some((line) => line.startsWith('{')))
    const { job } = await asked(homes, ['submit', jobFile])
    const volunteers = (['a', 'b'] as const).map((home) =>
      homes.starling(home, ['volunteer', URL, '--executor', 'reference', '--name', home, '--once'], {
        STARLING_CACHE: join(folder, `${nat}-${server}-${home}`),
      }),
    )
    await Promise.all(
      volunteers.map(async (volunteer) => {
        const [code] = (await once(volunteer.process, 'exit')) as [number | null]
        assert.equal(code, 0, [...volunteer.lines, ...coordinator.lines].join('\n'))
      }),
    )
    return { run: await asked(homes, ['show', job.id]), log: coturn.lines }
  } finally {
    await homes.tearDown()
  }
}

/** A busy machine may open a link so late that the relay is taken first: who can link does so in one of three tries. */
async function trainLinked(nat: Nat, server: 'stun' | 'turn', tries = 3): Promise<Trained> {
  const trained = await train(nat, server)
  return trained.run.relay.bytes === 0 || tries === 1 ? trained : trainLinked(nat, server, tries - 1)
}

const allocations = (log: readonly string[]): number =>
  new Set(log.flatMap((line) => /user <(\d+:[0-9a-f]{32})>.*ALLOCATE processed, success/.exec(line)?.[1] ?? [])).size

const skip = noHomes() ?? false
describe('two homes behind NAT', { skip, timeout: 7 * LIMIT_MS }, () => {
  test('routers that keep a port for all: they reach each other by STUN alone', async () => {
    const { run, log } = await trainLinked('cone', 'stun')
    assert.deepEqual([run.phase, run.version.v, run.relay.bytes], ['finished', STEPS, 0])
    assert.equal(allocations(log), 0)
    assert.equal(run.checkpoint?.agreeing, 2)
  })

  test('routers with a port for each destination: they reach each other through TURN', async () => {
    const { run, log } = await trainLinked('symmetric', 'turn')
    assert.deepEqual([run.phase, run.version.v, run.relay.bytes], ['finished', STEPS, 0])
    assert.equal(allocations(log), 2, 'each with credentials of its own')
    assert.equal(run.checkpoint?.agreeing, 2)
  })

  test('such routers without a TURN server: the coordinator relays', async () => {
    const { run } = await train('symmetric', 'stun')
    assert.deepEqual([run.phase, run.version.v], ['finished', STEPS])
    assert.ok(run.relay.bytes > 0)
  })
})
