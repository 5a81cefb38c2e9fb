// All volunteers leave, and one comes back with what it kept: in one process, with the real coordinator, volunteer and
// stores. What a slow line does is done by hand: the coordinator hears of no step that the volunteer made last.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { createNodeHost } from '@starling-grid/client-node/host'
import { openShardCache } from '@starling-grid/client-web/shard-cache'
import { type Coordinator, createCoordinator } from '@starling-grid/coordinator'
import { allRecords, jobId, type JobSpec, pathTo, ROUTES, type RunView, systemClock } from '@starling-grid/protocol'
import { createVolunteer, type ShardCache, type VolunteerHost } from '@starling-grid/volunteer'
import { KeptState, MemoryGrid, type Volunteer } from '@starling-grid/volunteer/testing'

const TOKEN = 'the-owner-token-of-tests'
/** Production's but for the wait of the restart; a rewind would come only after the 60 s of T_lost. */
const TIMING = { admitMs: 100, checkpointMs: 3_600_000, checkpointSteps: 1_000_000 }
const JOB: JobSpec = {
  name: 'Small digits',
  owner: 'tests',
  purpose: 'To be trained quickly.',
  model: { name: 'linear', input: [1, 28, 28], layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }] },
  dataset: { source: 'digits' },
  optimizer: { type: 'sgd', lr: 0.01, momentum: 0.9 },
  blockSamples: 16,
  batchBlocks: 2,
  stop: { epochs: 50 },
  seed: 3,
  mode: 'ring',
  volunteers: { min: 1 },
  evaluate: { everyEpochs: 1000 },
}

const folder = await mkdtemp(join(tmpdir(), 'starling-'))
process.env['STARLING_CACHE'] = join(folder, 'cache')
after(() => rm(folder, { recursive: true, force: true, maxRetries: 10 }))

/** Cache Storage as pages have it. */
function memoryCaches(): Pick<CacheStorage, 'open'> {
  const kept = new Map<string, Uint8Array<ArrayBuffer>>()
  const cache = {
    match: async (key: string) => (kept.has(key) ? new Response(kept.get(key)) : undefined),
    put: async (key: string, response: Response) => void kept.set(key, new Uint8Array(await response.arrayBuffer())),
  }
  return { open: async () => cache as unknown as Cache }
}

async function tabStore(): Promise<ShardCache> {
  Object.assign(globalThis, { caches: memoryCaches() })
  return openShardCache(1e9)
}

/** To the coordinator. Once slow, HELD messages stay on the way. */
class Line {
  slow = false
  #came: () => void = () => undefined
  /** a step was made that the coordinator does not hear of */
  readonly swallowed = new Promise<void>((resolve) => {
    this.#came = resolve
  })

  passes(text: string): boolean {
    const { type } = JSON.parse(text) as { type: string }
    if (!this.slow || type !== 'held') return true
    this.#came()
    return false
  }
}

function hostOf(url: string, shards: ShardCache, line: Line): VolunteerHost {
  const host = createNodeHost({ coordinatorUrl: url, executor: 'reference' })
  return {
    ...host,
    shards,
    openPeerNetwork: async (access) => new MemoryGrid().join(access.self),
    dialCoordinator: async (path) => {
      const socket = await host.dialCoordinator(path)
      const send = socket.send.bind(socket)
      socket.send = (text) => (line.passes(text) ? send(text) : undefined)
      return socket
    },
  }
}

interface Visit {
  readonly volunteer: Volunteer
  readonly ended: Promise<void>
  /** resolves when the volunteer shows a version that `is` wanted */
  shows(is: (version: number) => boolean): Promise<number>
}

function visit(host: VolunteerHost): Visit {
  let shown = 0
  let wake: () => void = () => undefined
  const volunteer = createVolunteer(host, {
    name: 'one',
    onStatus: ({ version }) => {
      shown = version
      return wake()
    },
  })
  const shows = async (is: (version: number) => boolean): Promise<number> => {
    while (!is(shown))
      await new Promise<void>((resolve) => {
        wake = resolve
      })
    return shown
  }
  return { volunteer, ended: volunteer.run(), shows }
}

async function runOf({ url }: Coordinator, id: string): Promise<RunView> {
  return (await (
    await fetch(`${url}${pathTo(ROUTES.job, { id })}`, { headers: { authorization: `Bearer ${TOKEN}` } })
  ).json()) as RunView
}

async function submit({ url }: Coordinator): Promise<string> {
  const response = await fetch(`${url}${ROUTES.jobs}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
    body: JSON.stringify(JOB),
  })
  return ((await response.json()) as { id: string }).id
}

const STORES: Readonly<Record<string, () => Promise<ShardCache>>> = {
  'a Node volunteer': async () => createNodeHost({ coordinatorUrl: 'http://localhost', executor: 'reference' }).shards,
  'a tab': tabStore,
}

for (const [who, openStore] of Object.entries(STORES)) {
  test(
    `${who} that kept a version beyond the committed one forms the ring at once with it, and no step is repeated`,
    { timeout: 300_000 },
    async () => {
      const coordinator = createCoordinator({ dataDir: join(folder, who), token: TOKEN, port: 0, timing: TIMING })
      await coordinator.start()
      try {
        const [id, store, line] = [await submit(coordinator), await openStore(), new Line()]
        const first = visit(hostOf(coordinator.url, store, line))
        await first.shows((version) => version >= 3)
        line.slow = true
        await line.swallowed
        await first.volunteer.stop()
        await first.ended
        const before = await runOf(coordinator, id)
        const kept = (await new KeptState(store, jobId(id), systemClock).read()) ?? assert.fail('nothing was kept')
        const held = kept.claim.base.v + kept.claim.records.length
        assert.ok(held > before.version.v, `kept ${held}, committed ${before.version.v}`)

        line.slow = false
        const second = visit(hostOf(coordinator.url, store, line))
        assert.ok((await second.shows((version) => version > 0)) >= held, 'it goes on from what it kept')
        await second.shows((version) => version > held)
        const headers = { authorization: `Bearer ${TOKEN}` }
        const records = await allRecords(id, async (path) =>
          (await fetch(`${coordinator.url}${path}`, { headers })).json(),
        )
        const generations = new Set(records.filter(({ v }) => v <= held).map(({ generation }) => generation))
        assert.equal(generations.size, 1, 'the steps of the first visit are those of its only generation')
        await second.volunteer.stop()
        await second.ended
      } finally {
        await coordinator.stop()
      }
    },
  )
}
