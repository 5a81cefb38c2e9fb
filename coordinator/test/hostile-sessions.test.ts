// Strangers at a live coordinator: they join as anybody may, and then send changed messages. Each of them is answered
// or closed, the process takes no memory for it, and the two honest members go on. STARLING_FUZZ multiplies the numbers
// of tries.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { genesis, isErrorCode, random32 } from '@starling-grid/protocol'
import { unprovenHello } from './fake-volunteer.ts'
import { QUICK, runOf, smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

const STRANGERS = Math.ceil(30 * Number(process.env['STARLING_FUZZ'] ?? 1))
const MESSAGES = 40
/** bytes: a leak of one message each would be twice as much */
const MOST_GROWTH = 150 * 1024 * 1024
/** A ballot waits for claims, also of a process that gets no core meanwhile. */
const CLAIMS_MS = 30_000

function changed(message: object, random: () => number): string {
  const text = JSON.stringify(message)
  const at = random() % text.length
  const ways: readonly (() => string)[] = [
    () => text,
    () => text.slice(0, at),
    () => text.slice(0, at) + String.fromCharCode(random() % 0xffff) + text.slice(at + 1),
    () => text.replace(/\d+/, ['-1', '1e309', '9007199254740993', '0.5', 'null'][random() % 5] ?? '0'),
    () =>
      text.replace(
        /"[0-9a-f]{32,}"/,
        ['""', '"../../etc/passwd"', '[]', `"${'f'.repeat(100_000)}"`][random() % 4] ?? '',
      ),
    () => text.replace('{', '{"__proto__":{"polluted":1},'),
    () => text.replace('{', `{"claim":${'['.repeat(3000)}${']'.repeat(3000)},`),
    () =>
      JSON.stringify({
        ...message,
        [['type', 'generation', 'fence', 'x'][random() % 4] ?? 'x']: [null, {}, 'held', 2 ** 53][random() % 4],
      }),
  ]
  return (ways[random() % ways.length] ?? ways[0])?.() ?? text
}

test(
  `${STRANGERS * MESSAGES} changed messages of ${STRANGERS} members disconnect their senders alone`,
  { timeout: 240_000 },
  async () => {
    const log: string[] = []
    const { url } = await startCoordinator({ timing: QUICK, log: ({ message }) => log.push(message) })
    const { id } = await submit(url, smallJob({ stop: { epochs: 1000 } }))
    const honest = [volunteer(url, { stepMs: 10 }), volunteer(url, { stepMs: 10 })]
    await until(url, 'the ring', (run) => run.phase === 'ring' && run.version.v > 0)
    const random = random32(1)
    const before = process.memoryUsage().rss
    for (let i = 0; i < STRANGERS; i++) {
      const stranger = volunteer(url, { obedient: false, name: `stranger ${i}` })
      await once(stranger.socket, 'open')
      stranger.hello()
      await stranger.heard('welcome')
      if (i % 2 === 0) stranger.ready()
      const { version, generation } = await runOf(url, id)
      const ballot = { job: id, fence: 1, generation: generation + (random() % 2) }
      const record = {
        v: version.v + 1,
        generation,
        modeEpoch: 0,
        kind: 'ring',
        blocks: ['0:1'],
        samples: 1,
        targets: 1,
        lossSum: 1,
        correct: 0,
        gradDigest: 'a'.repeat(64),
      }
      const messages: readonly object[] = [
        unprovenHello({ name: 'again' }),
        {
          type: 'heartbeat',
          job: id,
          samplesPerSecond: 1,
          activity: 'x',
          bytesSent: 0,
          bytesReceived: 0,
          refusals: [{ code: 'checksum', from: stranger.id, count: 1 }],
        },
        { type: 'state', ...ballot, claim: { base: version, records: [record] } },
        { type: 'held', ...ballot, record },
        { type: 'confirm', ...ballot, version, digest: 'a'.repeat(64) },
        {
          type: 'abort',
          ...ballot,
          step: 1,
          blamed: honest[0]?.id ?? null,
          why: 'closed',
          links: [],
          code: 'link-lost',
          message: 'x',
        },
        { type: 'version-digest', ...ballot, version, digest: 'b'.repeat(64) },
        { type: 'lease-request', job: id, modeEpoch: 0 },
      ]
      for (let k = 0; k < MESSAGES; k++)
        if (stranger.socket.readyState === stranger.socket.OPEN)
          stranger.raw(changed(messages[random() % messages.length] ?? {}, random))
      stranger.close()
      await stranger.closed
      for (const { type, ...refusal } of stranger.messages)
        if (type === 'refused' && 'code' in refusal) assert.ok(isErrorCode(String(refusal.code)))
    }
    const { version, refusals, departed } = await runOf(url, id)
    assert.ok((refusals['message-malformed'] ?? 0) > STRANGERS, JSON.stringify(refusals))
    await until(url, 'more steps', (run) => run.version.v > version.v + 2)
    assert.equal(
      departed.filter(({ id: gone }) => honest.some((one) => one.id === gone)).length,
      0,
      'both honest members are still there',
    )
    assert.equal(({} as Record<string, unknown>)['polluted'], undefined)
    assert.ok(process.memoryUsage().rss - before < MOST_GROWTH, 'no growth of memory')
    assert.deepEqual(
      log.filter((line) => line.includes('defect')),
      [],
      'no message met a defect of ours',
    )
  },
)

test('a claim with a wrong count of samples, or with a block named twice, is refused', async () => {
  const { url } = await startCoordinator({ timing: { ...QUICK, stateMs: CLAIMS_MS } })
  await submit(url, smallJob({ volunteers: { min: 2 } }))
  const liar = volunteer(url, { obedient: false })
  await once(liar.socket, 'open')
  liar.hello()
  await liar.heard('welcome')
  liar.ready()
  volunteer(url)
  const { fence, generation } = await liar.heard('freeze')
  const base = genesis(liar.terms?.id ?? assert.fail(), liar.terms?.modelHash ?? assert.fail(), liar.terms?.seed ?? 0)
  const claim = (block: string, samples: number) => ({
    base,
    records: [
      {
        v: 1,
        generation,
        modeEpoch: 0,
        kind: 'ring',
        blocks: [block],
        samples,
        targets: samples,
        lossSum: 1,
        correct: 0,
        gradDigest: 'a'.repeat(64),
      },
    ],
  })
  const refusals = (): string[] =>
    liar.messages.flatMap((message) => (message.type === 'refused' ? [message.message] : []))
  liar.raw({ type: 'state', job: liar.terms?.id, fence, generation, claim: claim('0:0', 1) })
  await liar.heard('refused', ({ message }) => /expected 256 samples in these blocks, got 1/.test(message))
  liar.raw({ type: 'state', job: liar.terms?.id, fence, generation, claim: claim('0:00', 256) })
  await liar.heard('refused', ({ message }) => /block/.test(message) && !/expected 256/.test(message))
  assert.equal(refusals().length, 2)
})
