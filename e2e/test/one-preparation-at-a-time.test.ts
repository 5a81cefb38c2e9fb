// A job that is offered while a volunteer prepares for another one.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { createCoordinator } from '@starling-grid/coordinator'
import { live } from './lone-volunteer.ts'
import { smallJob } from './small-job.ts'

test('a newer job cancels the preparation of the older one, whose executor is released before the next is made, and nobody joins the older', { timeout: 120_000 }, async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'starling-'))
  const coordinator = createCoordinator({ dataDir, token: 'the-owner-token-of-tests', port: 0 })
  await coordinator.start()
  const deeds: string[] = []
  let open: () => void = () => undefined
  const gate = new Promise<void>((resolve) => (open = resolve))
  let asked: () => void = () => undefined
  const firstAsked = new Promise<void>((resolve) => (asked = resolve))
  const submit = async (seed: number) => coordinator.runs.submit(smallJob({ maxSteps: 10, minVolunteers: 9, seed }))
  const older = await submit(1)
  const life = live(coordinator.url, (host) => ({
    createExecutor: async (...spec) => {
      const number = deeds.filter((deed) => deed.startsWith('make')).length + 1
      deeds.push(`make ${number}`)
      asked()
      if (number === 1) await gate
      const executor = await host.createExecutor(...spec)
      const destroy = executor.destroy.bind(executor)
      return Object.assign(executor, {
        destroy: () => {
          deeds.push(`destroy ${number}`)
          destroy()
        },
      })
    },
  }))
  try {
    await firstAsked
    const newer = await submit(2) // the same model: only the name of the job tells them apart
    while (!life.statuses.some(({ job, phase }) => job !== null && phase === 'preparing')) await new Promise((resolve) => setTimeout(resolve, 20))
    open()
    while (newer.state.members.size === 0) await new Promise((resolve) => setTimeout(resolve, 20))
    assert.deepEqual(deeds, ['make 1', 'destroy 1', 'make 2'])
    assert.equal(older.state.members.size, 0)
    await life.stop()
    assert.deepEqual(deeds, ['make 1', 'destroy 1', 'make 2', 'destroy 2'])
    assert.equal(await life.ended, undefined)
  } finally {
    await life.stop()
    await coordinator.stop()
    await rm(dataDir, { recursive: true, force: true })
  }
})
