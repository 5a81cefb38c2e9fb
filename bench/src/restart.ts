// How long a coordinator that was killed takes to open a journal of very many events again, beside one that has none:
// from the start of its process to its answer about the job.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Grid } from '@starling-grid/cli'
import type { RunView } from '@starling-grid/protocol'
import { forgetJob } from './bench-database.ts'
import { makeLongRun } from './long-run.ts'
import { figuresOf } from './process-figures.ts'
import { type BenchRow, compared, rounded, toAim } from './row.ts'
import type { StoreSuiteOptions } from './suite.ts'

const EVENTS = 1_000_000
const SHORT_EVENTS = 5000
const AIM_SECONDS = 5

type RestartQuestion = Pick<StoreSuiteOptions, 'rounds' | 'log'> & {
  readonly events: number
  readonly state: string | undefined
}

export async function restartRows(options: StoreSuiteOptions): Promise<BenchRow[]> {
  const { events, short, rounds, log, postgres } = options
  const question = { events: events ?? (short ? SHORT_EVENTS : EVENTS), rounds, log }
  const sqlite = await restartRow({ ...question, state: undefined })
  return postgres === undefined ? [sqlite] : [sqlite, await restartRow({ ...question, state: postgres })]
}

async function restartRow({ events, rounds, log, state }: RestartQuestion): Promise<BenchRow> {
  const folder = await mkdtemp(join(tmpdir(), 'starling-restart-'))
  const where = state === undefined ? 'SQLite' : 'PostgreSQL'
  try {
    const own = { dataDir: join(folder, 'long'), token: crypto.randomUUID() }
    log(`${where}: a run of ${events} steps is made`)
    const job = await makeLongRun({ ...own, state, steps: events }, log)
    const seconds = await inTurns({ ...own, state, job, events, empty: join(folder, 'empty'), rounds }, (line) =>
      log(`${where}: ${line}`),
    )
    if (state !== undefined) await forgetJob(state, job)
    return compared(
      {
        name: `restart with a journal of ${events.toLocaleString('en')} events in ${where}`,
        adapter: 'one process',
        unit: 's',
        better: 'less',
        reach: toAim,
      },
      seconds.long,
      { aim: [AIM_SECONDS], 'no journal': seconds.empty },
    )
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

interface Turns {
  readonly dataDir: string
  readonly state: string | undefined
  readonly token: string
  readonly job: string
  readonly events: number
  readonly empty: string
  readonly rounds: number
}

/** Seconds of each restart. @throws Error when a step is lost */
async function inTurns(
  { dataDir, state, token, job, events, empty, rounds }: Turns,
  log: (line: string) => void,
): Promise<{ readonly long: readonly number[]; readonly empty: readonly number[] }> {
  const long = await Grid.start({ dataDir, token, env: storesIn(dataDir, state) })
  const bare = await Grid.start({ dataDir: empty, token })
  const seconds = { long: [] as number[], empty: [] as number[] }
  try {
    for (let round = 0; round < rounds; round++) {
      seconds.empty.push(await restarted(bare, () => bare.jobs()))
      seconds.long.push(await restarted(long, async () => requireWhole(await long.run(job), events)))
      const peak = figuresOf(long.coordinator.process.pid)?.peak
      log(
        `${rounded(seconds.long.at(-1) ?? 0)} s, of which ${rounded(seconds.empty.at(-1) ?? 0)} s are the process; ` +
          (peak === undefined ? '' : `at most ${Math.round(peak / 1e6)} MB`),
      )
    }
    return seconds
  } finally {
    await Promise.all([long.stop(), bare.stop()])
  }
}

/** As makeLongRun has them: coordinators of one database share their blobs. */
function storesIn(dataDir: string, state: string | undefined): NodeJS.ProcessEnv {
  return state === undefined
    ? {}
    : { STARLING_STATE: state, STARLING_BLOBS: pathToFileURL(join(dataDir, 'blobs')).href }
}

/** Seconds from the start of the process that follows a killed one to its answer. */
async function restarted(grid: Grid, answer: () => Promise<unknown>): Promise<number> {
  await grid.killCoordinator()
  const began = performance.now()
  await grid.restartCoordinator()
  await answer()
  return (performance.now() - began) / 1000
}

function requireWhole({ version }: RunView, steps: number): void {
  if (version.v !== steps) throw new Error(`expected version ${steps} after the restart, got ${version.v}`)
}
