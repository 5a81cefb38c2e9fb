// Off-ring members of a ring over real sockets and HTTP (A1): what one pushes is served only to the member that was
// given it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { pathTo, ROUTES } from '@starling-grid/protocol'
import type { FakeVolunteer } from './fake-volunteer.ts'
import { smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

/** A step takes longer than off-ring members are worth asking for. */
const STEP_MS = 400

/** Gives up in every ring that it is in, until the others go on without it and it is asked to work beside them. */
async function leaveRing(hermit: FakeVolunteer): Promise<void> {
  const seen = new Set<number>()
  for (;;) {
    const next = await Promise.race([
      hermit.heard('start', (start) => !seen.has(start.generation)),
      hermit.heard('async'),
    ])
    if (next.type === 'async') return
    seen.add(next.generation)
    hermit.send({
      type: 'abort',
      fence: next.fence,
      generation: next.generation,
      step: 1,
      blamed: hermit.id,
      why: 'own',
      links: [],
      code: 'gradient-not-finite',
      message: 'it cannot',
    })
  }
}

test('what a member pushes that the ring left out is given to one member, over HTTP, and to no other', async () => {
  const { url } = await startCoordinator({
    timing: { stateMs: 300, admitMs: 100, abortsBeforeFallback: 2, excludeMs: 600_000 },
  })
  const { id } = await submit(url, smallJob({ blockSamples: 8, stop: { epochs: 1 }, volunteers: { min: 3 } }))
  const [a, b, hermit] = [
    volunteer(url, { stepMs: STEP_MS }),
    volunteer(url, { stepMs: STEP_MS }),
    volunteer(url, { stepMs: 10_000 }),
  ]
  await leaveRing(hermit)
  await until(
    url,
    'a ring of two at work',
    (run) => run.phase === 'ring' && run.version.v > 1 && run.members.filter(({ rank }) => rank !== null).length === 2,
  )
  const { leases, base } = await hermit.heard('grant')
  const { fence, generation, rank, blocks, id: number, samples } = await a.heard('off-ring')
  assert.deepEqual(
    blocks,
    leases.map(({ block }) => block),
  )
  for (const member of [a, b]) member.send({ type: 'off-ring-known', fence, generation, id: number })
  const members = (await a.heard('form', (form) => form.generation === generation)).members
  const [chosen, other] = members[rank] === a.id ? [a, b] : [b, a]
  await chosen.heard('off-ring-take')
  const path = pathTo(ROUTES.givenSum, { id, sum: number })
  const sum = new Float32Array(await (await chosen.request(path)).arrayBuffer())
  assert.equal(sum.length, chosen.form.layout.total)
  const damping = (sum[0] ?? 0) / (samples / 1000)
  assert.ok(
    sum.every((value) => value === sum[0]) && damping > 0 && damping <= 1,
    `damped by ${damping} from version ${base.v}`,
  )
  assert.deepEqual(
    [
      (await other.request(path)).status,
      (await hermit.request(path)).status,
      (await chosen.request(`${path}0`)).status,
    ],
    [404, 404, 404],
  )
})

test('of three off-ring members, one that pushes a million times the usual counts as four usual ones', async () => {
  const { url } = await startCoordinator({
    timing: { stateMs: 300, admitMs: 100, abortsBeforeFallback: 2, excludeMs: 600_000 },
  })
  const { id } = await submit(url, smallJob({ blockSamples: 8, stop: { epochs: 1 }, volunteers: { min: 5 } }))
  const members = [volunteer(url, { stepMs: STEP_MS }), volunteer(url, { stepMs: STEP_MS })]
  const honest = volunteer(url, { stepMs: 10_000 })
  const [idle, hostile] = ['idle', 'hostile'].map((name) => volunteer(url, { name, stepMs: 10_000, works: false }))
  for (const offRing of [honest, idle, hostile]) await leaveRing(offRing ?? assert.fail())
  await until(url, 'a first push that only tells', ({ refusals }) => (refusals['gradient-unproven'] ?? 0) > 0)
  const grant = await hostile?.heard('grant')
  const answer = await hostile?.push(grant ?? assert.fail(), {
    body: new Float32Array(hostile.form.layout.total).fill(1e6 * 0.008),
  })
  assert.equal(answer?.verdict, 'received', answer?.message)
  const { fence, generation, id: number, rank, blocks, samples } = await (members[0] ?? assert.fail()).heard('off-ring')
  for (const member of members) member.send({ type: 'off-ring-known', fence, generation, id: number })
  const order = (await (members[0] ?? assert.fail()).heard('form', (form) => form.generation === generation)).members
  const chosen = members.find((member) => member.id === order[rank]) ?? assert.fail()
  await chosen.heard('off-ring-take')
  const sum = new Float32Array(await (await chosen.request(pathTo(ROUTES.givenSum, { id, sum: number }))).arrayBuffer())
  assert.ok(
    grant?.leases.every(({ block }) => blocks.includes(block)),
    'its push is in it',
  )
  const times = (sum[0] ?? Number.NaN) / (samples / 1000)
  assert.ok(times > 0 && times < 4.01, `${times} times the usual`)
})
