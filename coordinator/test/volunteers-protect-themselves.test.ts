// What a coordinator that means harm can do to a volunteer: the real volunteer against a server that knows no limits.
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { test } from 'node:test'
import { gzipSync } from 'node:zlib'
import { type Clock, MAX_SHARD_BYTES, systemClock } from '@starling-grid/protocol'
import { listening, startHostile, startVictim } from './hostile-coordinator.ts'

/** ms beyond which the declined job's timer is the only one */
const LONG_MS = 3_600_000
/** bytes that the process may grow by: what it takes of a shard, several times, and the garbage of a test */
const GROWTH = 150 * 1024 * 1024

async function growth(work: () => Promise<unknown>): Promise<number> {
  const before = process.memoryUsage().rss
  let most = before
  const timer = setInterval(() => {
    most = Math.max(most, process.memoryUsage().rss)
  }, 5)
  await work().finally(() => clearInterval(timer))
  return Math.max(most, process.memoryUsage().rss) - before
}

test('threat 52: a body without an end is given up at its bound', { timeout: 120_000 }, async () => {
  let sent = 0
  const { url } = await startHostile({
    shard: (_, response) => {
      const piece = Buffer.alloc(1024 * 1024)
      const go = (): void => {
        while (!response.destroyed && response.write(piece)) sent += piece.length
        sent += piece.length
      }
      response.on('drain', go)
      go()
    },
  })
  const victim = startVictim(url)
  const grown = await growth(() =>
    victim.status('a refusal of the body', ({ detail }) => /message-too-large/.test(detail)),
  )
  await victim.volunteer.stop()
  assert.ok(sent > MAX_SHARD_BYTES, `${sent} bytes were sent`)
  assert.ok(grown < GROWTH, `${grown} bytes`)
})

test('threat 52: a body that expands is refused before it is expanded', { timeout: 120_000 }, async () => {
  const bomb = gzipSync(Buffer.alloc(512 * 1024 * 1024))
  let wanted: string | undefined
  const { url } = await startHostile({
    shard: ({ headers }, response) => {
      wanted = headers['accept-encoding'] as string
      response.writeHead(200, { 'content-encoding': 'gzip', 'content-length': bomb.length }).end(bomb)
    },
  })
  const victim = startVictim(url)
  const grown = await growth(() =>
    victim.status('a refusal of the encoding', ({ detail }) => /encoded as gzip/.test(detail)),
  )
  await victim.volunteer.stop()
  assert.equal(wanted, 'identity')
  assert.ok(grown < GROWTH, `${grown} bytes`)
})

test('threat 55: a redirect is not followed to another host', { timeout: 120_000 }, async () => {
  const reached: string[] = []
  const third = await listening(
    createServer((request, response) => {
      reached.push(request.url ?? '')
      response.end()
    }),
  )
  const { url, asked } = await startHostile({
    shard: (_, response) => response.writeHead(302, { location: `${third}/latest/meta-data/secret` }).end(),
  })
  const victim = startVictim(url)
  await victim.status('a request that failed', ({ detail }) => /HTTP 302/.test(detail))
  await victim.volunteer.stop()
  assert.ok(asked.some((path) => path.startsWith('/api/shards/')))
  assert.deepEqual(reached, [])
})

test(
  'threat 52: a manifest that claims more than its shards can hold is refused before anything is fetched or expanded',
  { timeout: 120_000 },
  async () => {
    const shards = Array.from({ length: 8 }, (_, i) => ({
      sha256: String(i).repeat(64),
      bytes: 1000,
      samples: 10_000_000,
    }))
    const { url, asked } = await startHostile({
      job: (terms) => ({
        ...terms,
        blockSamples: 1,
        dataset: { ...terms.dataset, train: shards } as typeof terms.dataset,
      }),
    })
    const victim = startVictim(url)
    const grown = await growth(() =>
      victim.status('a refusal of the blocks', ({ detail }) => /1000000 blocks/.test(detail)),
    )
    await victim.volunteer.stop()
    assert.deepEqual(asked, [])
    assert.ok(grown < GROWTH, `${grown} bytes`)
    const few = await startHostile({
      job: (terms) => ({
        ...terms,
        dataset: { ...terms.dataset, train: [{ ...shards[0], samples: 1000 }] } as typeof terms.dataset,
      }),
    })
    const other = startVictim(few.url)
    await other.status('a refusal of the samples', ({ detail }) => /1000 samples of 784/.test(detail))
    await other.volunteer.stop()
    assert.deepEqual(few.asked, [])
  },
)

test(
  'threat 52: samples of another shape than the model takes are refused before anything is fetched or allocated',
  { timeout: 120_000 },
  async () => {
    const { url, asked } = await startHostile({
      job: (terms) => ({ ...terms, dataset: { ...terms.dataset, inputShape: [1000, 1000, 1000] } }),
    })
    const victim = startVictim(url)
    await victim.status('a refusal of the shape', ({ detail }) => /expected samples of 1 × 28 × 28/.test(detail))
    await victim.volunteer.stop()
    assert.deepEqual(asked, [])
  },
)

test(
  'threat 10: what a coordinator says reaches terminals and pages as text without control characters',
  { timeout: 120_000 },
  async () => {
    const evil = '\u001b]0;owned\u0007\u001b[2J\u202etxt'
    const refused = JSON.stringify({
      type: 'refused',
      code: 'session-unknown',
      message: `refused ${evil}`,
      fatal: true,
    })
    const { url, sockets } = await startHostile({
      job: (terms) => ({ ...terms, name: `name ${evil}`, owner: `owner ${evil}`, purpose: `purpose ${evil}` }),
      shard: () => sockets.forEach((socket) => socket.send(refused)),
    })
    const victim = startVictim(url)
    const shown = JSON.stringify([
      await victim.status('the job', ({ job }) => job !== null),
      await victim.status('the end', ({ phase }) => phase === 'failed'),
    ])
    assert.match(shown, /name \]0;owned\[2Jtxt/)
    assert.match(shown, /refused \]0;owned/)
    assert.doesNotMatch(shown, /\\u001b|\\u0007|\u202e|\\u202e/)
  },
)

test("threat 52: a job beyond the owner's memory limit is refused before any fetch", { timeout: 120_000 }, async () => {
  const { url, asked } = await startHostile({})
  const victim = startVictim(url, { limits: { memoryBytes: 1000, uploadBytesPerHour: 1e9 } })
  const { phase, detail } = await victim.status('a refusal', (status) => /raise --max-memory/.test(status.detail))
  assert.equal(phase, 'waiting')
  assert.match(detail, /limit of 0\.0 MB of memory/)
  assert.deepEqual(asked, [])
  await victim.volunteer.stop()
  assert.equal(await victim.ended, undefined, 'it did not end by itself')
})

test('threat 53: a job whose blocks take too much work is refused before any fetch', { timeout: 120_000 }, async () => {
  const { url, asked } = await startHostile({})
  const victim = startVictim(url, { limits: { memoryBytes: 1e9, uploadBytesPerHour: 1e9, blockFlops: 1e6 } })
  const { phase } = await victim.status('a refusal', ({ detail }) => /raise --max-work/.test(detail))
  assert.equal(phase, 'waiting')
  assert.deepEqual(asked, [])
  await victim.volunteer.stop()
})

test('a job that is declined for some time is taken again by a timer', { timeout: 120_000 }, async () => {
  const { url, asked, job } = await startHostile({})
  let ahead = 0
  const timers = new Map<number, () => void>()
  const clock: Clock = {
    ...systemClock,
    wallTime: () => Date.now() + ahead,
    sleep: (ms, signal) =>
      ms < LONG_MS ? systemClock.sleep(ms, signal) : new Promise((wake) => void timers.set(ms, wake)),
  }
  const kept = JSON.stringify([{ job, losses: [], until: Date.now() + 2 * LONG_MS }])
  const declined = { others: async () => [kept], write: async () => undefined }
  const victim = startVictim(url, {}, { clock, declined })
  await victim.status('a refusal', ({ detail }) => /it takes this one again in \d+ min/.test(detail))
  assert.deepEqual(asked, [])
  assert.equal(timers.size, 1)
  const [[ms, wake]] = [...timers] as [[number, () => void]]
  ahead = ms
  wake()
  await victim.status('preparing', ({ phase }) => phase === 'preparing')
  while (asked.length === 0) await new Promise((resolve) => setTimeout(resolve, 1))
  await victim.volunteer.stop()
})

test(
  'threat 28: a volunteer that takes relays only opens no signalling, so that WebRTC learns and tells no address',
  { timeout: 120_000 },
  async () => {
    const { url, sockets, upgrades } = await startHostile({ shard: (_, response) => response.writeHead(404).end() })
    const victim = startVictim(url, { relaysOnly: true })
    await victim.status('preparing', ({ phase }) => phase === 'preparing')
    assert.ok(sockets.size > 0)
    assert.deepEqual(
      upgrades.filter((path) => path.startsWith('/signalling')),
      [],
    )
    await victim.volunteer.stop()
  },
)
