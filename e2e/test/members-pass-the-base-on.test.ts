// Shards of an imported model travel from member to member: the coordinator serves them once, to the first, and counts
// show it. A tab keeps what it fetched and gives it to Node processes.
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, request as requestOf, type Server } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import { importTuned } from '@starling-grid/cli/tuned-job'
import { launchBrowser } from '@starling-grid/client-node'
import { ensureWebPage } from '@starling-grid/client-web/build'
import type { JobSpec } from '@starling-grid/protocol'
import { publishedModel, SMALL_LLAMA } from '@starling-grid/volunteer/testing'
import { QUICK } from './small-job.ts'

/** 3 M parameters: four shards in f32. */
const CONFIG = { ...SMALL_LLAMA, hidden_size: 256, num_hidden_layers: 4, head_dim: 64, intermediate_size: 640 }
const CONTEXT = 32

const folder = await mkdtemp(join(tmpdir(), 'starling-base-'))
after(() => rm(folder, { recursive: true, force: true }))

/** Bytes of shards that the coordinator sent, through a proxy that all volunteers come by. */
class CountingProxy {
  shardBytes = 0
  readonly #server: Server
  #target: URL

  static async start(target: string): Promise<CountingProxy> {
    const proxy = new CountingProxy(new URL(target))
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve))
    return proxy
  }

  private constructor(target: URL) {
    this.#target = target
    this.#server = createServer((asked, answer) => {
      const sent = requestOf(this.#ask(asked), (answered) => {
        answer.writeHead(answered.statusCode ?? 502, answered.headers)
        if (asked.url?.startsWith('/api/shards/') === true)
          answered.on('data', (piece: Buffer) => this.#count(piece.byteLength))
        answered.pipe(answer)
      })
      sent.on('error', () => answer.destroy())
      asked.pipe(sent)
    })
    this.#server.on('upgrade', (asked, client, head) => {
      const upstream = connect(Number(this.#target.port), this.#target.hostname, () => {
        const headers = asked.rawHeaders.flatMap((text, i, all) => (i % 2 === 0 ? [`${text}: ${all[i + 1]}\r\n`] : []))
        upstream.write(`${asked.method} ${asked.url} HTTP/1.1\r\n${headers.join('')}\r\n`)
        upstream.write(head)
        client.pipe(upstream).pipe(client)
      })
      upstream.on('error', () => client.destroy())
      client.on('error', () => upstream.destroy())
    })
  }

  #count(bytes: number): void {
    this.shardBytes += bytes
  }

  #ask({ method = 'GET', url = '/', headers }: IncomingMessage) {
    return { host: this.#target.hostname, port: this.#target.port, method, path: url, headers }
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  pointTo(target: string): void {
    this.#target = new URL(target)
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}

/** The coordinator's data folder. */
async function imported(): Promise<string> {
  const [dataDir, text] = [join(folder, 'data'), join(folder, 'part.txt')]
  await writeFile(text, 'a text of some words, '.repeat(200))
  await importTuned({
    dataDir,
    model: 'small',
    published: join(folder, 'published'),
    files: publishedModel({ config: CONFIG }),
    storage: 'f32',
    text,
    context: CONTEXT,
    validationShare: 0.1,
  })
  return dataDir
}

const JOB: JobSpec = {
  name: 'Tune together',
  owner: 'Starling',
  purpose: 'Tunes adapters beside a small published model.',
  model: { base: 'small', context: CONTEXT, lora: { rank: 2 } },
  dataset: { name: 'text', windowsPerEpoch: 1000 },
  optimizer: { type: 'sgd', lr: 0.1 },
  blockSamples: 1,
  batchBlocks: 4,
  stop: { steps: 100_000 },
  evaluate: { everyEpochs: 1000 },
  seed: 5,
  mode: 'ring',
}

const data = imported()

/** A grid whose volunteers all come by the proxy that counts. */
async function counted(dataDir: string, webRoot?: string): Promise<{ grid: Grid; proxy: CountingProxy }> {
  let proxy: CountingProxy | undefined
  const grid = await Grid.start({
    dataDir,
    timing: QUICK,
    ...(webRoot === undefined ? {} : { webRoot }),
    proxied: async (target) => {
      proxy = await CountingProxy.start(target)
      return proxy
    },
  })
  assert.ok(proxy !== undefined)
  return { grid, proxy }
}

/** Resolves when this many train together. */
function ringOf(grid: Grid, count: number): Promise<unknown> {
  return grid.watch.waitFor(
    `a ring of ${count}`,
    ({ run }) => run?.phase === 'ring' && run.members.filter(({ rank }) => rank !== null).length === count,
    200_000,
  )
}

test(
  'the coordinator serves a base once: a tab passes it on to a process, and both to another',
  { timeout: 600_000 },
  async () => {
    const { grid, proxy } = await counted(await data, await ensureWebPage(() => undefined))
    const browser = await launchBrowser()
    try {
      const id = await grid.submit(JOB)
      const page = await browser.newPage()
      await page.goto(`${grid.url}/?executor=wasm`)
      await page.locator('button[data-primary]').click()
      await ringOf(grid, 1)
      const { baseBytes = 0 } = (await grid.watch.waitFor('the run', ({ run }) => run)).job
      assert.ok(baseBytes > 10e6, `${baseBytes}`)
      assert.ok(proxy.shardBytes >= baseBytes, `the first has it from the coordinator: ${proxy.shardBytes}`)

      for (const [count, name] of [
        [2, 'one'],
        [3, 'two'],
      ] as const) {
        const before = proxy.shardBytes
        const env = { STARLING_CACHE: join(folder, name) }
        const child = grid.addVolunteer({ name, executor: 'wasm', threads: 1, job: id, env })
        await ringOf(grid, count)
        const served = proxy.shardBytes - before
        const told = child.lines.join('\n')
        assert.ok(served < 0.05 * baseBytes, `the coordinator served ${served} bytes to member ${count}\n${told}`)
        assert.match(told, /^base .*from [12] members?/m, told)
      }
    } finally {
      await browser.close()
      await grid.stop()
    }
  },
)

test(
  'of a room that opens at once one takes the base from the coordinator, the others from each other',
  { timeout: 600_000 },
  async () => {
    const { grid, proxy } = await counted(await data)
    try {
      const id = await grid.submit({ ...JOB, volunteers: { min: 4 } })
      const room = ['three', 'four', 'five', 'six'].map((name) =>
        grid.addVolunteer({ name, executor: 'wasm', threads: 1, job: id, env: { STARLING_CACHE: join(folder, name) } }),
      )
      await ringOf(grid, 4)
      const { baseBytes = 0 } = (await grid.watch.waitFor('the run', ({ run }) => run)).job
      const told = room.map(({ lines }) => lines.filter((line) => line.startsWith('base ')).join('\n'))
      const served = proxy.shardBytes / baseBytes
      assert.ok(served < 2, `the coordinator served ${served.toFixed(2)} bases to four\n${told.join('\n')}`)
      assert.ok(told.filter((line) => /from [1-3] members?/.test(line)).length >= 2, told.join('\n'))
    } finally {
      await grid.stop()
    }
  },
)
