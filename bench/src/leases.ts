// Leases under load: volunteers on sockets of their own, each of which leases a block and pushes its gradient every two
// seconds. The coordinator is a process of its own, as users start it.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { Agent } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import type { JobSpec } from '@starling-grid/protocol'
import { LeaseHolder } from './lease-holder.ts'
import { type BenchRow, compared, rounded } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const BARE = fileURLToPath(new URL('bare-leases.ts', import.meta.url))
const SIZES = [500, 2000] as const
/** of one address: below what a coordinator lets in (net/sessions.ts) */
const PER_ADDRESS = 200
/** ms between groups of PER_JOIN volunteers that join */
const JOIN_MS = 100
const PER_JOIN = 50
/** ms that everything settles before it is measured, and of one round */
const WARM_MS = 6000
const ROUND_MS = 10_000
const OK = 200
/** ms: 99 of 100 leases are granted within */
const WANTED_MS = 50

/** One version of 256 pushes: as many as a version may have. */
const JOB: JobSpec = {
  name: 'Leases under load',
  owner: 'the Starling benchmarks',
  purpose: 'Measures how many volunteers one coordinator carries.',
  public: true,
  model: {
    name: 'load',
    input: [1, 28, 28],
    layers: [{ type: 'avgpool2d', kernel: 7 }, { type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }],
    loss: 'cross_entropy',
  } as JobSpec['model'],
  dataset: { source: 'digits' },
  optimizer: { type: 'sgd', lr: 0.01 },
  blockSamples: 1,
  batchBlocks: 256,
  stop: { epochs: 10_000 },
  evaluate: { everyEpochs: 10_000 },
  audit: 0,
  seed: 1,
  mode: 'async',
  async: { update: 'proportion', proportion: 256 },
}

interface Load {
  /** ms of every lease of a round, ascending */
  readonly leases: readonly number[]
  readonly commits: number
}

export async function leaseRows({ rounds, log }: SuiteOptions): Promise<BenchRow[]> {
  const rows: BenchRow[] = []
  for (const size of SIZES) rows.push(await leaseRow(size, { rounds, log }))
  return rows
}

async function leaseRow(size: number, { rounds, log }: Pick<SuiteOptions, 'rounds' | 'log'>): Promise<BenchRow> {
  const ours = await ofCoordinator(size, { rounds, log })
  const bare = await ofBareServer(size, { rounds, log })
  return compared(
    {
      name: `p99 of a lease, ${size} volunteers that lease and push every 2 s (${WANTED_MS} ms wanted)`,
      adapter: 'one process',
      unit: 'ms',
      better: 'less',
    },
    ours.map(({ leases }) => quantile(leases, 0.99)),
    { 'bare sockets': bare.map(({ leases }) => quantile(leases, 0.99)) },
  )
}

async function ofCoordinator(size: number, { rounds, log }: Pick<SuiteOptions, 'rounds' | 'log'>): Promise<Load[]> {
  const grid = await Grid.start({})
  try {
    const job = await grid.submit(JOB)
    const crowd = await LeaseCrowd.join(grid.url, size)
    const loads = await crowd.rounds(rounds, (load) => log(`coordinator, ${size}: ${asText(load)}`))
    const records = await grid.records(job)
    const blocks = records.flatMap((record) => record.blocks)
    if (new Set(blocks).size < blocks.length) throw new Error('blocks were counted twice')
    log(`coordinator, ${size}: ${blocks.length} blocks on the chain, none twice; ${crowd.refused} pushes refused`)
    crowd.leave()
    return loads
  } finally {
    await grid.stop()
  }
}

async function ofBareServer(size: number, { rounds, log }: Pick<SuiteOptions, 'rounds' | 'log'>): Promise<Load[]> {
  const server = fork(TYPESCRIPT, [BARE])
  try {
    const [{ url }] = (await once(server, 'message')) as [{ readonly url: string }]
    const crowd = await LeaseCrowd.join(url, size)
    const loads = await crowd.rounds(rounds, (load) => log(`bare sockets, ${size}: ${asText(load)}`))
    crowd.leave()
    return loads
  } finally {
    server.kill()
  }
}

/** Volunteers of one process, on several addresses of it. */
class LeaseCrowd {
  #holders: LeaseHolder[] = []
  #leases: number[] = []
  #commits = 0
  refused = 0
  #left = false

  static async join(url: string, size: number): Promise<LeaseCrowd> {
    const crowd = new LeaseCrowd()
    const agents = Array.from({ length: Math.ceil(size / PER_ADDRESS) }, () => new Agent({ keepAlive: true }))
    for (let i = 0; i < size; i++) {
      if (i % PER_JOIN === 0) await delay(JOIN_MS)
      const at = Math.floor(i / PER_ADDRESS)
      crowd.#add(url, { name: `load-${i}`, localAddress: `127.0.0.${2 + at}`, agent: agents[at] ?? new Agent() })
    }
    await Promise.all(crowd.#holders.map(({ ready }) => ready))
    await delay(WARM_MS)
    return crowd
  }

  #add(url: string, own: { readonly name: string; readonly localAddress: string; readonly agent: Agent }): void {
    const holder = new LeaseHolder({
      url,
      ...own,
      onLease: (ms) => this.#leases.push(ms),
      onCommit: (_, status) => {
        if (status === OK) this.#commits++
        else this.refused++
      },
    })
    void holder.closed.then((code) => {
      if (!this.#left) throw new Error(`${own.name} was closed with ${code}`)
    })
    this.#holders.push(holder)
  }

  async rounds(count: number, onRound: (load: Load) => void): Promise<Load[]> {
    const loads: Load[] = []
    for (let round = 0; round < count; round++) {
      this.#leases = []
      this.#commits = 0
      await delay(ROUND_MS)
      loads.push({ leases: this.#leases.sort((a, b) => a - b), commits: this.#commits })
      onRound(loads.at(-1) ?? { leases: [], commits: 0 })
    }
    return loads
  }

  leave(): void {
    this.#left = true
    for (const holder of this.#holders) holder.close()
  }
}

function asText({ leases, commits }: Load): string {
  const each = (count: number): string => `${((1000 * count) / ROUND_MS).toFixed(0)}/s`
  const at = (part: number): string => `${rounded(quantile(leases, part))} ms`
  return `${each(leases.length)} leases, p50 ${at(0.5)}, p99 ${at(0.99)}; ${each(commits)} pushes taken`
}

function quantile(ascending: readonly number[], part: number): number {
  return ascending[Math.floor(part * ascending.length)] ?? Number.POSITIVE_INFINITY
}
