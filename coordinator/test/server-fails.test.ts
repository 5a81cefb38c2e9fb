// Runs whose parameter server works in threads, or fails in the middle.
import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import type { StepRecord } from '@starling-grid/protocol'
import { ParameterServer } from '../src/parameter-server/parameter-server.ts'
import { runOf, smallJob, startCoordinator, submit, volunteer } from './fixture.ts'

const BLOCKS = 36

async function assertEachBlockOnce(url: string, id: string): Promise<void> {
  const { records } = (await (await fetch(`${url}/api/jobs/${id}/records`)).json()) as { records: StepRecord[] }
  const blocks = records.flatMap((record) => record.blocks)
  assert.deepEqual([blocks.length, new Set(blocks).size], [BLOCKS, BLOCKS])
}

test('a parameter server that fails costs the work since its checkpoint, and the run goes on to its end', async () => {
  const close = ParameterServer.prototype.close
  let calls = 0
  const failing = mock.method(ParameterServer.prototype, 'close', function (this: ParameterServer, ...asked: Parameters<typeof close>) {
    if (++calls === 4) throw new Error('a thread ended')
    return close.apply(this, asked)
  })
  try {
    const { url } = await startCoordinator()
    const { id } = await submit(url, smallJob({ mode: 'async', epochs: 1 }))
    const fakes = [volunteer(url), volunteer(url)]
    await Promise.all(fakes.map((fake) => fake.heard('finished')))
    await assertEachBlockOnce(url, id)
    const run = await runOf(url, id)
    assert.deepEqual([run.phase, run.checkpoint?.v], ['finished', run.version.v])
    assert.ok(calls > 9, 'the versions after the last checkpoint were made again')
  } finally {
    failing.mock.restore()
  }
})

test('a model large enough for threads trains in async mode, half of the members a version', async () => {
  const model = { name: 'wide', input: [1, 28, 28], layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 1400 }] }
  const { url } = await startCoordinator()
  const { status, id } = await submit(url, smallJob({ mode: 'async', epochs: 1, model, async: { update: 'proportion', proportion: 2, delayCompensation: 0.04 } }))
  assert.equal(status, 201)
  const fakes = [volunteer(url), volunteer(url)]
  await Promise.all(fakes.map((fake) => fake.heard('finished')))
  await assertEachBlockOnce(url, id)
  const run = await runOf(url, id)
  assert.equal(run.checkpoint?.v, run.version.v)
  assert.ok(run.version.v < 18, 'fewer versions than pushes')
})

test('settings of async mode that contradict each other are refused with the job', async () => {
  const { url } = await startCoordinator()
  const { status, code, message } = await submit(url, smallJob({ mode: 'async', async: { update: 'all', whenStale: 'drop' } }))
  assert.deepEqual([status, code], [422, 'job-invalid'])
  assert.match(message ?? '', /members wait for each other/)
})
