// A submission that names a reference and comes again, at the same time, later, or to a coordinator that started anew.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type JobSpec, pathTo, ROUTES } from '@starling-grid/protocol'
import { OWNER, smallJob, startCoordinator, temporaryFolder } from './fixture.ts'

const REFERENCE = 'nightly-17'
const JOB = smallJob({ reference: REFERENCE, public: true, stop: { epochs: 1 } })

async function send(url: string, job: JobSpec) {
  const response = await fetch(url + ROUTES.jobs, {
    method: 'POST',
    headers: { ...OWNER, 'content-type': 'application/json' },
    body: JSON.stringify(job),
  })
  return { status: response.status, answer: (await response.json()) as { id: string; detail?: string } }
}

test('a submission that comes again with its reference is one job, over a restart too', async () => {
  const dataDir = await temporaryFolder()
  const first = await startCoordinator({ dataDir })
  const answers = await Promise.all(Array.from({ length: 5 }, () => send(first.url, JOB)))
  const ids = new Set(answers.map(({ answer }) => answer.id))
  assert.deepEqual([answers.map(({ status }) => status), ids.size], [[201, 201, 201, 201, 201], 1])
  await first.stop()
  const second = await startCoordinator({ dataDir })
  assert.ok(ids.has((await send(second.url, JOB)).answer.id))
  assert.equal(second.runs.list().length, 1)
})

test('jobs without a reference are as many as are sent, and a reference of another job is refused', async () => {
  const { url, runs } = await startCoordinator()
  for (let i = 0; i < 2; i++) await send(url, smallJob())
  assert.equal(runs.list().length, 2)
  await send(url, JOB)
  const { status, answer } = await send(url, { ...JOB, seed: 99 })
  assert.equal(status, 422)
  assert.match(answer.detail ?? '', /^reference: expected a reference that no other job has, got that of small-digits-/)
})

test('a reference is shown to the owner alone', async () => {
  const { url } = await startCoordinator()
  const { id } = (await send(url, JOB)).answer
  const seenBy = async (headers: Record<string, string>) =>
    ((await (await fetch(url + pathTo(ROUTES.job, { id }), { headers })).json()) as { job: object }).job
  assert.equal('reference' in (await seenBy(OWNER)), true)
  assert.equal('reference' in (await seenBy({})), false)
})
