// A job that is offered while a volunteer prepares for another one.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { createCoordinator } from '@starling-grid/coordinator'
import { live } from './lone-volunteer.ts'
import { smallJob } from './small-job.ts'

async function state(isThere: () => boolean): Promise<void> {
  while (!isThere()) await new Promise((resolve) => setTimeout(resolve, 20))
}

test(
  'a job of higher priority cancels the preparation of another one, which no member joins',
  { timeout: 120_000 },
  async () => {
    const dataDir = await mkdtemp(join(tmpdir(), 'starling-'))
    const coordinator = createCoordinator({ dataDir, token: 'the-owner-token-of-tests', port: 0 })
    await coordinator.start()
    const deeds: string[] = []
    let open: () => void = () => undefined
    const gate = new Promise<void>((resolve) => {
      open = resolve
    })
    let asked: () => void = () => undefined
    const firstAsked = new Promise<void>((resolve) => {
      asked = resolve
    })
    const submit = async (priority: number) =>
      coordinator.runs.submit({ ...smallJob({ stop: { steps: 10 }, minVolunteers: 9 }), priority })
    const older = await submit(0)
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
      const newer = await submit(1) // the same model: only the name of the job tells them apart
      await state(() => life.statuses.some(({ job, phase }) => job !== null && phase === 'preparing'))
      open()
      await state(() => newer.state.members.size > 0)
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
  },
)

test(
  'a job that its owner pauses in the middle of a step costs the step and not the volunteer',
  { timeout: 120_000 },
  async () => {
    const dataDir = await mkdtemp(join(tmpdir(), 'starling-'))
    const coordinator = createCoordinator({
      dataDir,
      token: 'the-owner-token-of-tests',
      port: 0,
      timing: { parkMs: 0 },
    })
    await coordinator.start()
    const submit = async (seed: number) =>
      coordinator.runs.submit(smallJob({ stop: { steps: 1000 }, minVolunteers: 1, seed }))
    let failed = 0
    /** a computation does not end before its executor does */
    let holds = false
    let held = 0
    const older = await submit(1)
    const life = live(coordinator.url, (host) => ({
      createExecutor: async (...spec) => {
        const executor = await host.createExecutor(...spec)
        const [gradient, destroy] = [executor.gradient.bind(executor), executor.destroy.bind(executor)]
        let isDestroyed = false
        return Object.assign(executor, {
          gradient: async (...asked: Parameters<typeof gradient>) => {
            if (holds) held++
            await state(() => isDestroyed || !holds)
            if (isDestroyed) failed++
            if (isDestroyed) throw new Error('the buffer is destroyed')
            return gradient(...asked)
          },
          destroy: () => {
            isDestroyed = true
            destroy()
          },
        })
      },
    }))
    try {
      await state(() => older.state.chain.head.v >= 2)
      const newer = await submit(2)
      holds = true
      await state(() => held > 0)
      coordinator.runs.pause(older)
      await state(() => failed > 0)
      holds = false
      await state(() => newer.state.chain.head.v >= 2)
      assert.equal(await Promise.race([life.ended, 'lives on']), 'lives on')
    } finally {
      await life.stop()
      await coordinator.stop()
      await rm(dataDir, { recursive: true, force: true })
    }
  },
)
