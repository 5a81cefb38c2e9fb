// What a submitted model asks of volunteers is said before and after it is accepted.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ROUTES } from '@starling-grid/protocol'
import { OWNER, runOf, smallJob, startCoordinator, submit, TOKEN } from './fixture.ts'

async function dry(url: string, job: unknown, wish = 'true') {
  const response = await fetch(`${url}${ROUTES.jobs}?dry=${wish}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
    body: JSON.stringify(job),
  })
  return { status: response.status, body: (await response.json()) as { detail?: string } }
}

test('a dry submission says parameters and activation memory, and starts nothing', async () => {
  const { url } = await startCoordinator()
  // flatten makes 784 values of a sample, the linear layer 10
  assert.deepEqual(await dry(url, smallJob()), {
    status: 200,
    body: { model: { parameters: 7850, activationBytes: 4 * 794 } },
  })
  assert.equal((await dry(url, smallJob(), 'yes')).status, 400)
  assert.deepEqual(await (await fetch(`${url}${ROUTES.jobs}`, { headers: OWNER })).json(), {
    jobs: [],
    next: null,
    damaged: [],
  })
  const wrong = await dry(
    url,
    smallJob({ model: { input: [3], layers: [{ type: 'conv2d', name: 'a', out: 1, kernel: 1 }] } }),
  )
  assert.equal(wrong.status, 422)
  assert.match(wrong.body.detail ?? '', /model\.layers\[0\]: expected an image .*, got the shape \[3\]/)
})

test('the view of an accepted job says the same', async () => {
  const { url } = await startCoordinator()
  const { job } = await runOf(url, (await submit(url, smallJob())).id)
  assert.deepEqual([job.parameters, job.activationBytes], [7850, 4 * 794])
})

test('a model beyond the limits is refused with both of its numbers', async () => {
  const { url } = await startCoordinator()
  const layers = [
    { type: 'flatten' },
    { type: 'linear', name: 'wide', out: 100_000 },
    { type: 'linear', name: 'head', out: 10 },
  ]
  const { status, detail } = await submit(url, smallJob({ model: { input: [1, 28, 28], layers } }))
  assert.equal(status, 422)
  assert.match(
    detail ?? '',
    /at most 67108864 parameters and 1073741824 bytes of activations per sample, got 79500010 and 403176;/,
  )
})
