// How fast a coordinator serves shards to volunteers of this machine, beside a bare HTTP server that streams the same
// files.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { readdir, stat } from 'node:fs/promises'
import { Agent, get } from 'node:http'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { demoJob, Grid } from '@starling-grid/cli'
import { pathTo, ROUTES } from '@starling-grid/protocol'
import { type BenchRow, type Contender, race } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const BARE = fileURLToPath(new URL('bare-files.ts', import.meta.url))
/** shards have about 1.5 MiB; what is smaller is no shard */
const LEAST_BYTES = 1_000_000
/** volunteers that read at once, and how often each reads all shards */
const READERS = 4
const TIMES = 16
const WANTED = 500

export async function shardRow({ rounds }: SuiteOptions): Promise<BenchRow> {
  const grid = await Grid.start({})
  const server = fork(TYPESCRIPT, [BARE])
  try {
    await grid.submit(demoJob({ stop: { epochs: 1 }, seed: 1 }))
    const files = await shardsIn(join(grid.dataDir, 'blobs'))
    const bare = ((await once(server, 'message')) as [{ url: string }])[0].url
    const ofCoordinator = files.map((file) => grid.url + pathTo(ROUTES.shard, { sha256: basename(file) }))
    const ofBare = files.map((file) => `${bare}/?${encodeURIComponent(file)}`)
    return await race(
      { name: `shards served to ${READERS} readers (${WANTED} wanted)`, adapter: 'loopback', unit: 'MB/s' },
      reading(ofCoordinator),
      { 'bare HTTP': reading(ofBare) },
      rounds,
    )
  } finally {
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

/** MB a second. */
function reading(urls: readonly string[]): Contender {
  return async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: READERS })
    const began = performance.now()
    let bytes = 0
    const reader = async (): Promise<void> => {
      for (let i = 0; i < TIMES; i++) for (const url of urls) bytes += await lengthOf(url, agent)
    }
    await Promise.all(Array.from({ length: READERS }, reader))
    agent.destroy()
    return bytes / 1000 / (performance.now() - began)
  }
}

/** Reads and counts it. */
function lengthOf(url: string, agent: Agent): Promise<number> {
  return new Promise((resolve, reject) => {
    get(url, { agent }, (answer) => {
      if (answer.statusCode !== 200) return reject(new Error(`expected a shard, got ${answer.statusCode}: ${url}`))
      let bytes = 0
      answer.on('data', (chunk: Buffer) => {
        bytes += chunk.byteLength
      })
      answer.once('end', () => resolve(bytes))
      answer.once('error', reject)
    }).once('error', reject)
  })
}
