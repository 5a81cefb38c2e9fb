// How fast a coordinator serves shards to volunteers of this machine, beside a bare HTTP server that streams the same
// files; and whether its memory grows.
import { fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { demoJob, Grid } from '@starling-grid/cli'
import { pathTo, ROUTES } from '@starling-grid/protocol'
import { type Ask, conversation } from './conversation.ts'
import { figuresOf, type ProcessFigures } from './process-figures.ts'
import { type BenchRow, compared, type Contender, race, toAim } from './row.ts'
import type { ReadOrder } from './shard-readers.ts'
import type { SuiteOptions } from './suite.ts'

const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const READING = fileURLToPath(new URL('shard-readers.ts', import.meta.url))
const BARE = fileURLToPath(new URL('bare-files.ts', import.meta.url))
/** shards have about 1.5 MiB; what is smaller is no shard */
const LEAST_BYTES = 1_000_000
const MB = 1e6
const GB = 1e9
/** ms between looks at the coordinator's memory */
const LOOK_MS = 50
/** volunteers that read at once, and how often each reads all shards */
const READERS = 4
const [TIMES, SHORT_TIMES] = [16, 2]
/** MB/s */
const AIM = 500
/** Of the memory before the measured rounds, what the most during them may be. */
const FLAT = 1.25

export async function shardRows({ rounds, short }: SuiteOptions): Promise<BenchRow[]> {
  const grid = await Grid.start({})
  const server = fork(TYPESCRIPT, [BARE])
  const readers = spawn(process.execPath, [TYPESCRIPT, READING], { stdio: ['pipe', 'pipe', 'inherit'] })
  const ask = conversation(readers)
  try {
    await grid.submit(demoJob({ stop: { epochs: 1 }, seed: 1 }))
    const files = await shardsIn(join(grid.dataDir, 'blobs'))
    const bare = ((await once(server, 'message')) as [{ url: string }])[0].url
    const ofCoordinator = files.map((file) => grid.url + pathTo(ROUTES.shard, { sha256: basename(file) }))
    const ofBare = files.map((file) => `${bare}/?${encodeURIComponent(file)}`)
    const times = short ? SHORT_TIMES : TIMES
    const watch = new ServerWatch(grid.coordinator.process.pid, readers.pid)
    const ours = reading(ask, ofCoordinator, times)
    await ours() // what is needed to serve is in memory from here
    watch.start()
    const row = await race(
      { name: `shards served to ${READERS} readers`, adapter: 'loopback', unit: 'MB/s', reach: toAim },
      watch.counting(ours),
      { aim: async () => AIM, 'bare HTTP': reading(ask, ofBare, times) },
      rounds,
    )
    return watch.rows(row, rounds * READERS * times * (await bytesOf(files)))
  } finally {
    readers.kill()
    server.kill()
    await grid.stop()
  }
}

async function shardsIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name))
  const sizes = await Promise.all(files.map(async (file) => (await stat(file)).size))
  const shards = files.filter((_, i) => (sizes[i] ?? 0) >= LEAST_BYTES)
  if (shards.length === 0) throw new Error(`expected shards in ${folder}, got none`)
  return shards
}

async function bytesOf(files: readonly string[]): Promise<number> {
  return (await Promise.all(files.map((file) => stat(file)))).reduce((sum, { size }) => sum + size, 0)
}

/** Memory and CPU time of the coordinator while it serves, and CPU time of the process that reads. */
class ServerWatch {
  readonly #pid: number | undefined
  readonly #readers: number | undefined
  #before: ProcessFigures | undefined
  #most = 0
  #cpuMs = 0
  #readerMs = 0
  #timer: NodeJS.Timeout | undefined

  constructor(pid: number | undefined, readers: number | undefined) {
    this.#pid = pid
    this.#readers = readers
  }

  start(): void {
    this.#before = figuresOf(this.#pid)
    this.#timer = setInterval(() => this.#look(), LOOK_MS)
  }

  /** What serving itself cost: the peers run between its rounds. */
  counting(serve: Contender): Contender {
    return async () => {
      const spent = (pid: number | undefined): number => figuresOf(pid)?.cpuMs ?? 0
      const [server, readers] = [spent(this.#pid), spent(this.#readers)]
      const rate = await serve()
      this.#cpuMs += spent(this.#pid) - server
      this.#readerMs += spent(this.#readers) - readers
      return rate
    }
  }

  #look(): void {
    this.#most = Math.max(this.#most, figuresOf(this.#pid)?.resident ?? 0)
  }

  /** The rate alone where the figures of another process are not known. */
  rows(rate: BenchRow, served: number): BenchRow[] {
    clearInterval(this.#timer)
    this.#look()
    if (this.#before === undefined) return [rate]
    const before = this.#before.resident / MB
    const head = { name: 'coordinator that serves shards, memory', adapter: 'loopback', unit: 'MB' } as const
    const perGb = (ms: number): number => Math.round((ms * GB) / served)
    const counts = {
      'MB served': Math.round(served / MB),
      'CPU ms for a GB': perGb(this.#cpuMs),
      'CPU ms of the readers for a GB': perGb(this.#readerMs),
    }
    return [
      { ...rate, counts },
      compared({ ...head, better: 'less', reach: toAim }, [this.#most / MB], {
        aim: [FLAT * before],
        before: [before],
      }),
    ]
  }
}

/** MB a second. */
function reading(ask: Ask, urls: readonly string[], times: number): Contender {
  return async () => {
    const { bytes, ms } = await ask({ urls, readers: READERS, times } satisfies ReadOrder)
    return Number(bytes) / 1000 / Number(ms)
  }
}
