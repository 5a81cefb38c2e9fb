// Uploads that take many steps of a ring that goes on meanwhile (R15).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

/** ms of an upload, ms of a step: at the last, some fifty steps pass during an upload */
const RATES = [
  [0, 40],
  [300, 40],
  [1500, 40],
  [2500, 40],
  [1500, 100],
] as const
const CHECKPOINTS = 3

for (const [uploadMs, stepMs] of RATES)
  test(
    `uploads of ${uploadMs} ms at steps of ${stepMs} ms: every checkpoint that is asked for is accepted`,
    { concurrency: true },
    async () => {
      const coordinator = await startCoordinator()
      const { url } = coordinator
      const { id } = await submit(url, smallJob({ stop: { epochs: 1000 } }))
      const fakes = [volunteer(url, { uploadMs, stepMs }), volunteer(url, { uploadMs, stepMs })]
      const seen = new Set<number>()
      await until(url, 'checkpoints', (run) => seen.add(run.checkpoint?.v ?? 0).size > CHECKPOINTS)
      const asked = (fakes[0]?.messages ?? []).flatMap((message) =>
        message.type === 'checkpoint-at' ? [message.v] : [],
      )
      const { checkpoints } = coordinator.runs.find(id)?.state ?? assert.fail()
      const accepted = checkpoints.flatMap(({ version, witnessed, blob }) =>
        witnessed && blob !== undefined ? [version.v] : [],
      )
      assert.deepEqual(accepted, asked.slice(0, accepted.length))
      assert.ok(asked.length - accepted.length <= 1, 'one is asked for at a time')
      assert.ok(fakes.flatMap(({ uploads }) => uploads).length <= accepted.length + 1, 'one upload at a time')
      for (const fake of fakes) fake.close()
    },
  )
