// What a submitted model asks of volunteers is said before and after it is accepted.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseJob, parseModelSpec } from '@starling-grid/model'
import { ROUTES } from '@starling-grid/protocol'
import { requireStateMemory } from '../src/jobs/state-memory.ts'
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
    { type: 'linear', name: 'wide', out: 2_000_000 },
    { type: 'linear', name: 'head', out: 10 },
  ]
  const { status, detail } = await submit(url, smallJob({ model: { input: [1, 28, 28], layers } }))
  assert.equal(status, 422)
  assert.match(
    detail ?? '',
    /at most 1073741823 parameters and 1073741824 bytes of activations per sample, got 1590000010 and 8003176;/,
  )
})

test('what bounds a model is memory: GPT-2 124M fits 4 GB, and not 2', async () => {
  const spec = parseJob(smallJob({ optimizer: { type: 'adamw', lr: 1e-3 } }))
  const layers = [{ type: 'gpt', blocks: 12, heads: 12, vocab: 50_257, channels: 768, context: 8 }]
  const model = parseModelSpec({ input: [8], layers, loss: 'cross_entropy' })
  requireStateMemory(spec, model, 4e9)
  assert.throws(
    () => requireStateMemory(spec, model, 2e9),
    /expected a state that this coordinator can hold 2 times in its 2\.0 GB of memory, got 1\.5 GB; /,
  )
})

test('a state beyond what frames count is refused by a dry and by a real submission', async () => {
  const { url } = await startCoordinator()
  const layers = [
    { type: 'flatten' },
    { type: 'linear', name: 'wide', out: 500_000 },
    { type: 'linear', name: 'head', out: 10 },
  ]
  const job = smallJob({ model: { input: [1, 28, 28], layers }, optimizer: { type: 'adamw', lr: 1e-3 } })
  const refused = /model: expected a state .*, got 4\.8 GB; tune adapters/
  const tried = await dry(url, job)
  assert.equal(tried.status, 422)
  assert.match(tried.body.detail ?? '', refused)
  assert.match((await submit(url, job)).detail ?? '', refused)
})
