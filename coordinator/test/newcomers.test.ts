// Newcomers of a real run: what they have to show before its ring stops for them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { RunView } from '@starling-grid/protocol'
import type { FakeVolunteer } from './fake-volunteer.ts'
import { smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

const LONG = smallJob({ stop: { epochs: 10_000 } })
const STEP_MS = 20
/** Steps that a ring makes beside a newcomer: several times as long as an honest one takes to be in it. */
const STEPS_BESIDE = 100

async function ringOfTwo(): Promise<{ readonly url: string; readonly run: RunView }> {
  const { url } = await startCoordinator()
  await submit(url, LONG)
  for (const name of ['a', 'b']) volunteer(url, { name, stepMs: STEP_MS })
  return { url, run: await until(url, 'the ring', ({ phase, version }) => phase === 'ring' && version.v > 2) }
}

const isInRing = (run: RunView, { id }: FakeVolunteer): boolean =>
  run.members.some((member) => member.id === id && member.rank !== null)

test('a newcomer that proves what it holds is in the next ring', async () => {
  const { url } = await ringOfTwo()
  const newcomer = volunteer(url, { name: 'honest', stepMs: STEP_MS })
  const proof = await newcomer.heard('prove')
  assert.ok(proof.peers.length > 0)
  await until(url, 'a ring of three', (run) => run.phase === 'ring' && isInRing(run, newcomer))
})

for (const [kind, change] of [
  ['is mute', () => undefined],
  ['says another digest', (digest: string) => digest.replace(/^./, (first) => (first === '0' ? '1' : '0'))],
] as const)
  test(`no ballot stops a ring for a newcomer that ${kind}, and it alone waits`, async () => {
    const { url, run } = await ringOfTwo()
    const newcomer = volunteer(url, {
      name: 'odd',
      change: (message) => {
        if (message.type !== 'proof' || message.digest === null) return message
        const digest = change(message.digest)
        return digest === undefined ? undefined : { ...message, digest: digest as typeof message.digest }
      },
    })
    await newcomer.heard('prove')
    const { version } = await until(url, 'the newcomer', (now) => now.members.length === 3)
    const later = await until(url, 'steps beside it', (now) => now.version.v > version.v + STEPS_BESIDE)
    assert.deepEqual([later.generation, isInRing(later, newcomer)], [run.generation, false])
  })

test('the coordinator compares a newcomer with its own bytes of version 0, outside the event loop', async () => {
  const { url } = await startCoordinator()
  await submit(url, smallJob({ stop: { epochs: 10_000 }, volunteers: { min: 1 } }))
  volunteer(url, { stepMs: 2000 })
  await until(url, 'the ring', ({ phase }) => phase === 'ring')
  const newcomer = volunteer(url, { stepMs: 2000 })
  const { version, sources } = await newcomer.heard('prefetch')
  assert.deepEqual([version.v, sources], [0, []])
  await until(url, 'a ring of two', (run) => isInRing(run, newcomer))
})
