// Leases under load: volunteers on sockets of their own, each of which leases a block and pushes its gradient every two
// seconds. The coordinator is a process of its own, as users start it, and so are the volunteers (lease-crowd.ts). At
// the end all that was taken has to be on the chain.
import { type ChildProcess, fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import type { BlockId, JobSpec, StepRecord } from '@starling-grid/protocol'
import { type Ask, conversation } from './conversation.ts'
import type { CrowdHistory, CrowdLoad, CrowdOrder } from './lease-crowd.ts'
import { figuresOf } from './process-figures.ts'
import { type BenchRow, compared, rounded, toAim } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const BARE = fileURLToPath(new URL('bare-leases.ts', import.meta.url))
const CROWD = fileURLToPath(new URL('lease-crowd.ts', import.meta.url))
/** volunteers of one process */
const PER_PROCESS = 500
/** ms: 99 of 100 leases are granted within */
const AIM_MS = 50

interface LeaseSizes {
  readonly volunteers: readonly number[]
  readonly perProcess: number
  /** that make a version; 256: as many as it may have */
  readonly pushes: number
  /** ms that everything settles before it is measured, and of one round */
  readonly warmMs: number
  readonly roundMs: number
}
const WHOLE: LeaseSizes = {
  volunteers: [500, 2000],
  perProcess: PER_PROCESS,
  pushes: 256,
  warmMs: 6000,
  roundMs: 10_000,
}
const SHORT: LeaseSizes = { volunteers: [40], perProcess: 20, pushes: 16, warmMs: 2000, roundMs: 4000 }

/** `pushes` make a version. */
const jobOf = (pushes: number): JobSpec => ({
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
  batchBlocks: pushes,
  stop: { epochs: 10_000 },
  evaluate: { everyEpochs: 10_000 },
  audit: 0,
  seed: 1,
  mode: 'async',
  async: { update: 'proportion', proportion: pushes },
})

interface Load {
  /** ms of every lease of a round, ascending */
  readonly leases: readonly number[]
  readonly pushed: number
  readonly refused: number
}

interface LeaseQuestion extends Pick<SuiteOptions, 'rounds' | 'log'> {
  readonly sizes: LeaseSizes
  readonly volunteers: number
}

export async function leaseRows({ rounds, log, short }: SuiteOptions): Promise<BenchRow[]> {
  const sizes = short ? SHORT : WHOLE
  const rows: BenchRow[] = []
  for (const volunteers of sizes.volunteers) rows.push(await leaseRow({ volunteers, sizes, rounds, log }))
  return rows
}

async function leaseRow(question: LeaseQuestion): Promise<BenchRow> {
  const { loads, counts } = await ofCoordinator(question)
  const bare = await ofBareServer(question)
  const p99 = ({ leases }: Load): number => quantile(leases, 0.99)
  return {
    ...compared(
      {
        name: `p99 of a lease, ${question.volunteers} volunteers that lease and push every 2 s`,
        adapter: 'one process',
        unit: 'ms',
        better: 'less',
        reach: toAim,
      },
      loads.map(p99),
      { aim: [AIM_MS], 'bare sockets': bare.map(p99) },
    ),
    counts,
  }
}

async function ofCoordinator(
  question: LeaseQuestion,
): Promise<{ readonly loads: readonly Load[]; readonly counts: Readonly<Record<string, number>> }> {
  const { volunteers, log, sizes } = question
  const grid = await Grid.start({})
  const crowd = new LeaseCrowd(question)
  try {
    const job = await grid.submit(jobOf(sizes.pushes))
    await crowd.join(grid.url)
    const cpuMs = (): number => figuresOf(grid.coordinator.process.pid)?.cpuMs ?? Number.NaN
    const before = cpuMs()
    const loads = await crowd.rounds(`coordinator, ${volunteers}`)
    const cpuUs = Math.round((1000 * (cpuMs() - before)) / loads.reduce((sum, { pushed }) => sum + pushed, 0))
    const taken = await crowd.finish()
    const counts = countedOnce(taken, await grid.records(job))
    log(
      `coordinator, ${volunteers}: ${Object.entries(counts)
        .map(([what, count]) => `${count} ${what}`)
        .join(', ')}`,
    )
    const refused = loads.reduce((sum, load) => sum + load.refused, 0)
    log(`coordinator, ${volunteers}: ${cpuUs} µs of processor time for a lease and its push`)
    return {
      loads,
      counts: { ...counts, 'pushes refused': refused, ...(cpuUs > 0 ? { 'CPU µs of a push': cpuUs } : {}) },
    }
  } finally {
    crowd.stop()
    await grid.stop()
  }
}

/** Blocks of the version that is not made yet are in the coordinator's sum (A3). */
function countedOnce(
  taken: readonly (readonly [BlockId, number])[],
  records: readonly StepRecord[],
): Readonly<Record<string, number>> {
  const versions = records.map(({ blocks }) => new Set(blocks))
  const due = taken.filter(([, v]) => v <= records.length)
  const blocks = records.flatMap((record) => record.blocks)
  return {
    'blocks taken': taken.length,
    'in versions': due.length,
    lost: due.filter(([block, v]) => versions[v - 1]?.has(block) !== true).length,
    'on the chain twice': blocks.length - new Set(blocks).size,
  }
}

async function ofBareServer(question: LeaseQuestion): Promise<readonly Load[]> {
  const server = fork(TYPESCRIPT, [BARE])
  const crowd = new LeaseCrowd(question)
  try {
    const [{ url }] = (await once(server, 'message')) as [{ readonly url: string }]
    await crowd.join(url)
    return await crowd.rounds(`bare sockets, ${question.volunteers}`)
  } finally {
    crowd.stop()
    server.kill()
  }
}

/** Volunteers in processes of their own. */
class LeaseCrowd {
  readonly #question: LeaseQuestion
  readonly #processes: ChildProcess[] = []
  readonly #asks: Ask[] = []

  constructor(question: LeaseQuestion) {
    this.#question = question
  }

  async join(url: string): Promise<void> {
    const { volunteers, sizes } = this.#question
    for (let from = 0; from < volunteers; from += sizes.perProcess) {
      const child = spawn(process.execPath, [TYPESCRIPT, CROWD], { stdio: ['pipe', 'pipe', 'inherit'] })
      this.#processes.push(child)
      const ask = conversation(child)
      this.#asks.push(ask)
      await ask({ type: 'join', url, from, count: Math.min(sizes.perProcess, volunteers - from) } satisfies CrowdOrder)
    }
    await delay(sizes.warmMs)
    await this.#all<CrowdLoad>({ type: 'collect' })
  }

  async rounds(whose: string): Promise<Load[]> {
    const { rounds, sizes, log } = this.#question
    const loads: Load[] = []
    for (let round = 0; round < rounds; round++) {
      await delay(sizes.roundMs)
      const parts = await this.#all<CrowdLoad>({ type: 'collect' })
      const load = together(parts)
      log(`${whose}: ${asText(load, sizes.roundMs)}${reasons(parts)}`)
      loads.push(load)
    }
    return loads
  }

  async finish(): Promise<readonly (readonly [BlockId, number])[]> {
    return (await this.#all<CrowdHistory>({ type: 'finish' })).flatMap(({ taken }) => taken)
  }

  stop(): void {
    for (const child of this.#processes) child.kill()
  }

  async #all<T>(order: CrowdOrder): Promise<T[]> {
    return (await Promise.all(this.#asks.map((ask) => ask(order)))) as T[]
  }
}

function together(parts: readonly CrowdLoad[]): Load {
  return {
    leases: parts.flatMap(({ leases }) => leases).sort((a, b) => a - b),
    pushed: parts.reduce((sum, { pushed }) => sum + pushed, 0),
    refused: parts.flatMap(({ refused }) => Object.values(refused)).reduce((sum, count) => sum + count, 0),
  }
}

function asText({ leases, pushed, refused }: Load, roundMs: number): string {
  const each = (count: number): string => `${((1000 * count) / roundMs).toFixed(0)}/s`
  const at = (part: number): string => `${rounded(quantile(leases, part))} ms`
  return `${each(leases.length)} leases, p50 ${at(0.5)}, p99 ${at(0.99)}; ${each(pushed - refused)} pushes taken`
}

function reasons(parts: readonly CrowdLoad[]): string {
  const codes = new Map<string, number>()
  for (const { refused } of parts)
    for (const [code, count] of Object.entries(refused)) codes.set(code, (codes.get(code) ?? 0) + count)
  return [...codes].map(([code, count]) => `, ${count} refused: ${code}`).join('')
}

function quantile(ascending: readonly number[], part: number): number {
  return ascending[Math.floor(part * ascending.length)] ?? Number.POSITIVE_INFINITY
}
