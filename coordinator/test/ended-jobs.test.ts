// What a coordinator keeps of runs that ended: totals in memory, the rest on the disk.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Coordinator } from '@starling-grid/coordinator'
import { pathTo, ROUTES, type WatchMessage } from '@starling-grid/protocol'
import type { RunHost } from '../src/host/run-host.ts'
import {
  OWNER,
  recordsOf,
  runOf,
  smallJob,
  startCoordinator,
  submit,
  temporaryFolder,
  volunteer,
  watch,
} from './fixture.ts'

/** Entries that pages draw or the chain holds. */
function keptOf({ history, state }: RunHost): number {
  const chains = history.state.chain.counts.records + state.chain.counts.records
  return history.steps.length + history.validations.length + history.events.length + chains
}

async function released({ runs }: Coordinator, id: string): Promise<RunHost> {
  const host = runs.find(id) ?? assert.fail('the job is there')
  while (!host.history.isReleased) await new Promise((resolve) => setTimeout(resolve, 20))
  return host
}

/** What a page that opens now is told at first. */
async function snapshotOf(url: string): Promise<Extract<WatchMessage, { type: 'snapshot' }>> {
  const { messages, stop } = watch(url)
  try {
    for await (const message of messages) if (message.type === 'snapshot') return message
    return assert.fail('the stream ended')
  } finally {
    stop()
  }
}

test('a run that ended keeps only totals in memory; its curves are read from disk, also after a restart', async () => {
  const dataDir = await temporaryFolder()
  const coordinator = await startCoordinator({ dataDir })
  const { url } = coordinator
  const { id } = await submit(url, smallJob({ stop: { epochs: 2 } }))
  const [member] = [volunteer(url), volunteer(url)]
  await member?.heard('finished')
  const live = await snapshotOf(url)
  const host = await released(coordinator, id)
  assert.equal(live.steps.length, 18)
  assert.ok(keptOf(host) <= 1, `${keptOf(host)} entries are kept`)

  const late = await snapshotOf(url)
  assert.deepEqual([late.steps, late.validations], [live.steps, live.validations])
  assert.ok(late.events.some(({ text }) => text.includes('epochs are trained')))
  const run = await runOf(url, id)
  assert.deepEqual([run.samplesCommitted, run.version, run.phase], [18_000, live.run.version, 'finished'])
  assert.equal((await recordsOf(url, id)).length, 18)
  await coordinator.stop()

  const again = await startCoordinator({ dataDir })
  const reopened = await released(again, id)
  assert.ok(keptOf(reopened) <= 1)
  const third = await snapshotOf(again.url)
  assert.deepEqual([third.steps, third.validations], [live.steps, live.validations])
  assert.equal((await runOf(again.url, id)).samplesCommitted, 18_000)
  const model = await fetch(`${again.url}${pathTo(ROUTES.export, { id })}`, { headers: OWNER })
  assert.equal(model.status, 200)
})

test('pages that come together at a run that ended cost one read of the journal', async () => {
  const coordinator = await startCoordinator()
  const { url } = coordinator
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 } }))
  const [member] = [volunteer(url), volunteer(url)]
  await member?.heard('finished')
  const host = await released(coordinator, id)
  assert.equal(host.past(), host.past())
  const [a, b] = await Promise.all([snapshotOf(url), snapshotOf(url)])
  assert.deepEqual(a.steps, b.steps)
  assert.equal(a.steps.length, 9)
})
