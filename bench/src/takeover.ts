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
import { forgetJob } from './bench-database.ts'
import { type BenchRow, compared, rounded, toAim } from './row.ts'
import type { StoreSuiteOptions } from './suite.ts'

/** --kills 50 makes the figure */
const [KILLS, SHORT_KILLS] = [10, 1]
const AIM_SECONDS = 10
/** after which another coordinator counts as gone (R2-owner): no take-over is faster */
const SILENCE_SECONDS = 3
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

export async function takeoverRows(options: StoreSuiteOptions): Promise<BenchRow[]> {
  const { postgres, short, kills = short ? SHORT_KILLS : KILLS, log } = options
  if (postgres === undefined) return []
  const folder = await mkdtemp(join(tmpdir(), 'starling-takeover-'))
  const pair = await CoordinatorPair.start(folder, postgres)
  try {
    const { seconds, counts } = await pair.kills(kills, log)
    await pair.stop()
    await forgetJob(postgres, pair.job)
    const name = 'take-over by another coordinator until the job steps again'
    return [
      { ...takeoverRow(`${name}, median of ${kills} kills`, seconds), counts },
      { ...takeoverRow(`${name}, slowest of ${kills} kills`, [Math.max(...seconds)]), counts },
    ]
  } finally {
    await pair.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

function takeoverRow(name: string, seconds: readonly number[]): BenchRow {
  return compared(
    { name, adapter: 'two coordinators, two volunteers', unit: 's', better: 'less', reach: toAim },
    seconds,
    { aim: [AIM_SECONDS], 'silence that counts': [SILENCE_SECONDS] },
  )
}

interface Kills {
  readonly seconds: readonly number[]
  readonly counts: Readonly<Record<string, number>>
}

interface SeenHistory {
  /** of all steps */
  readonly digests: readonly string[]
  /** steps that were on the chain once and are not any more */
  readonly lost: number
  /** blocks that count twice */
  readonly doubled: number
}

/** Two coordinators; the one that has the job is killed, and started again. */
class CoordinatorPair {
  readonly #grids: readonly [Grid, Grid]
  readonly job: string
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
    this.job = job
  }

  async kills(kills: number, log: (line: string) => void): Promise<Kills> {
    const seconds: number[] = []
    let history = await this.#seen({ digests: [], lost: 0, doubled: 0 })
    for (let kill = 1; kill <= kills; kill++) {
      await this.#reaches((await this.#version()) + STEPS_BETWEEN)
      history = await this.#seen(history)
      seconds.push(await this.#kill())
      log(`kill ${kill} of ${kills}: the job steps again after ${rounded(seconds.at(-1) ?? 0)} s`)
      await this.#dead.restartCoordinator()
    }
    const { digests, lost, doubled } = await this.#seen(history)
    return { seconds, counts: { kills, steps: digests.length, 'steps lost': lost, 'blocks twice': doubled } }
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
    return this.#living.run(this.job).then(
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

  /** What is on the chain by now, compared with what was. */
  async #seen({ digests, lost }: SeenHistory): Promise<SeenHistory> {
    const records = await this.#living.records(this.job)
    const now = records.map(({ gradDigest }) => gradDigest)
    const blocks = records.flatMap((record) => record.blocks)
    return {
      digests: now,
      lost: lost + digests.filter((digest, i) => now[i] !== digest).length,
      doubled: blocks.length - new Set(blocks).size,
    }
  }

  async stop(): Promise<void> {
    for (const grid of this.#grids) await grid.stop()
  }
}
