// A coordinator dies, and another one of the same database goes on with its job: time until the job steps again, kill
// after kill in one training of real volunteers. What was lost or counted twice is looked for at the end.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { demoJob, Grid } from '@starling-grid/cli'
import { mlp } from '@starling-grid/model'
import type { JobSpec } from '@starling-grid/protocol'
import { type BenchRow, compared, rounded } from './row.ts'
import type { SuiteOptions } from './suite.ts'

/** STARLING_BENCH_KILLS=3 tries whether it works */
const KILLS = Number(process.env['STARLING_BENCH_KILLS'] ?? 50)
const WANTED_SECONDS = 10
/** steps that the training has done again before the next kill */
const STEPS_BETWEEN = 20
const LOOK_MS = 20
/** ms after which a take-over counts as failed */
const PATIENCE_MS = 60_000
const JOB: JobSpec = {
  ...demoJob({ stop: { epochs: 10_000 }, seed: 7, mode: 'ring', minVolunteers: 2 }),
  model: mlp({ input: [1, 28, 28], hidden: [32], classes: 10 }),
  blockSamples: 8,
  batchBlocks: 6,
}

export async function takeoverRows({ log }: SuiteOptions): Promise<BenchRow[]> {
  const { STARLING_STATE: state } = process.env
  if (state === undefined) {
    log('without take-overs: name an empty PostgreSQL database in STARLING_STATE to measure them')
    return []
  }
  const folder = await mkdtemp(join(tmpdir(), 'starling-takeover-'))
  const pair = await CoordinatorPair.start(folder, state)
  try {
    const seconds = await pair.kills(log)
    const head = {
      name: `take-over by another coordinator, ${KILLS} kills, until the job steps again (${WANTED_SECONDS} s wanted)`,
      adapter: 'two coordinators, two volunteers',
      unit: 's',
      better: 'less',
    } as const
    return [compared(head, seconds, {})]
  } finally {
    await pair.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

/** Two coordinators; the one that has the job is killed, and started again. */
class CoordinatorPair {
  readonly #grids: readonly [Grid, Grid]
  readonly #job: string
  #owner = 0

  static async start(folder: string, state: string): Promise<CoordinatorPair> {
    const token = crypto.randomUUID()
    const env = { STARLING_STATE: state, STARLING_BLOBS: pathToFileURL(join(folder, 'blobs')).href }
    const start = (name: string): Promise<Grid> => Grid.start({ dataDir: join(folder, name), token, env })
    const grids = [await start('first'), await start('second')] as const
    const job = await grids[0].submit(JOB)
    for (const grid of grids) grid.addVolunteer({ executor: 'reference' })
    return new CoordinatorPair(grids, job)
  }

  private constructor(grids: readonly [Grid, Grid], job: string) {
    this.#grids = grids
    this.#job = job
  }

  /** Seconds of each. @throws Error when a step is lost or a block counts twice */
  async kills(log: (line: string) => void): Promise<number[]> {
    const seconds: number[] = []
    let known: readonly string[] = []
    for (let kill = 1; kill <= KILLS; kill++) {
      await this.#reaches((await this.#version()) + STEPS_BETWEEN)
      known = await this.#requireWhole(known)
      seconds.push(await this.#kill())
      log(`kill ${kill}: the job steps again after ${rounded(seconds.at(-1) ?? 0)} s`)
      await this.#dead.restartCoordinator()
    }
    await this.#requireWhole(known)
    log(`${KILLS} kills: ${known.length} steps, none lost, no block counted twice`)
    return seconds
  }

  get #living(): Grid {
    return this.#grids[this.#owner === 0 ? 0 : 1]
  }

  get #dead(): Grid {
    return this.#grids[this.#owner === 0 ? 1 : 0]
  }

  async #kill(): Promise<number> {
    const before = await this.#version()
    const grid = this.#living
    const began = performance.now()
    await grid.killCoordinator()
    this.#owner = 1 - this.#owner
    await this.#reaches(before + 1)
    return (performance.now() - began) / 1000
  }

  /** Undefined answers are of a coordinator that has not taken the job yet. */
  async #version(): Promise<number> {
    return this.#living.run(this.#job).then(
      ({ version }) => version.v,
      () => 0,
    )
  }

  async #reaches(v: number): Promise<void> {
    for (const deadline = performance.now() + PATIENCE_MS; performance.now() < deadline;) {
      if ((await this.#version()) >= v) return
      await delay(LOOK_MS)
    }
    throw new Error(`expected version ${v} within ${PATIENCE_MS / 1000} s, got ${await this.#version()}`)
  }

  /** Digests of all steps by now. */
  async #requireWhole(known: readonly string[]): Promise<readonly string[]> {
    const records = await this.#living.records(this.#job)
    const digests = records.map(({ gradDigest }) => gradDigest)
    const lost = known.filter((digest, i) => digests[i] !== digest).length
    const blocks = records.flatMap((record) => record.blocks)
    const doubled = blocks.length - new Set(blocks).size
    if (lost + doubled > 0) throw new Error(`expected a whole history, got ${lost} steps lost, ${doubled} blocks twice`)
    return digests
  }

  async stop(): Promise<void> {
    for (const grid of this.#grids) await grid.stop()
  }
}
