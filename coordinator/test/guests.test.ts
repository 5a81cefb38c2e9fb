// Guests of a ring over real sockets and HTTP (A1): what one pushes is served to the member that was given it, and to nobody else.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'
import type { FakeVolunteer } from './fake-volunteer.ts'

/** A step takes longer than guests are worth asking for. */
const STEP_MS = 400

/** Gives up in the first ring that it is in, and in the second: then the others go on without it. */
async function leaveRing(hermit: FakeVolunteer): Promise<void> {
  const seen = new Set<number>()
  while (seen.size < 2) {
    const { owner, gen } = await hermit.heard('start', (start) => !seen.has(start.gen))
    seen.add(gen)
    hermit.send({ type: 'abort', owner, gen, step: 1, blamed: hermit.id, why: 'own', links: [], code: 'gradient-not-finite', message: 'it cannot' })
  }
}

test('what a member pushes that the ring left out is given to one member, over HTTP, and to no other', async () => {
  const { url } = await startCoordinator({ timing: { stateMs: 300, admitMs: 100, abortsBeforeFallback: 2, excludeMs: 600_000 } })
  const { id } = await submit(url, smallJob({ blockSamples: 8, epochs: 1, minVolunteers: 3 }))
  const [a, b, hermit] = [volunteer(url, { stepMs: STEP_MS }), volunteer(url, { stepMs: STEP_MS }), volunteer(url, { stepMs: 10_000 })]
  await leaveRing(hermit)
  await until(url, 'a ring of two at work', (run) => run.phase === 'ring' && run.version.v > 1 && run.members.filter(({ position }) => position !== null).length === 2)
  const { leases, base } = await hermit.heard('grant')
  const { owner, gen, place, blocks, id: number, samples } = await a.heard('guest')
  assert.deepEqual(blocks, leases.map(({ block }) => block))
  for (const member of [a, b]) member.send({ type: 'guest-known', owner, gen, id: number })
  const members = (await a.heard('form', (form) => form.gen === gen)).members
  const [chosen, other] = members[place] === a.id ? [a, b] : [b, a]
  await chosen.heard('guest-take')
  const path = `/api/jobs/${id}/guests/${number}`
  const sum = new Float32Array(await (await chosen.request(path)).arrayBuffer())
  assert.equal(sum.length, chosen.form.layout.total)
  const damping = (sum[0] ?? 0) / (samples / 1000)
  assert.ok(sum.every((value) => value === sum[0]) && damping > 0 && damping <= 1, `damped by ${damping} from version ${base.v}`)
  assert.deepEqual([(await other.request(path)).status, (await hermit.request(path)).status, (await chosen.request(`${path}0`)).status], [404, 404, 404])
})
