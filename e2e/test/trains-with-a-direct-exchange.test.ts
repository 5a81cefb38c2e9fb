// Real processes that exchange gradients from each to each. They train alike, lose no sample to a death, and go by the
// relay around a pair that cannot link. They name a member that sends what no honest one sends.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import type { JobSpec } from '@starling-grid/protocol'
import { finishesWhole, PACED, QUICK, tinyJob } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
const STEPS = 30

const directJob = (minVolunteers: number, steps = STEPS): JobSpec => ({
  ...tinyJob({ stop: { steps }, minVolunteers }),
  exchange: 'direct',
})
/** of a generation until its costs are told, and some */
const LONG = 60

test(
  'four members in a direct exchange end bit-identical, with one killed and one pair relayed',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: QUICK })
    try {
      const job = await grid.submit(directJob(4, LONG))
      for (let i = 0; i < 2; i++) grid.addVolunteer(PACED)
      grid.addVolunteer({ name: 'shut in', executor: 'reference', entry: FAULTY, env: { STARLING_FAULT: 'no-ice:1' } })
      const victim = grid.addVolunteer({ name: 'victim', executor: 'reference' })
      const run = await grid.watch.waitFor(
        'some steps of four, one pair of them relayed',
        ({ run }) =>
          run?.phase === 'ring' &&
          run.members.filter(({ rank }) => rank !== null).length === 4 &&
          run.version.v >= 4 &&
          run.relay.bytes > 0 &&
          run,
      )
      assert.deepEqual([run.exchange?.type, run.exchange?.reason], ['direct', 'the job asks for it'])
      const costs = await grid.watch.waitFor('what both ways cost', ({ run }) => run?.exchange?.costs ?? undefined)
      assert.ok(costs.ring > costs.direct, `four more hops cost something: ${JSON.stringify(costs)}`)
      victim.kill('SIGKILL')
      const end = await finishesWhole(grid, job, LONG)
      assert.equal(end.checkpoint?.members, 3)
      assert.ok(
        (await grid.records(job)).every(({ kind }) => kind === 'ring'),
        'it never left ring mode',
      )
    } finally {
      await grid.stop()
    }
  },
)

for (const [fault, code] of [
  ['send-nan', 'gradient-not-finite'],
  ['send-huge', 'gradient-outlier'],
] as const)
  test(
    `a member of a direct exchange that does ${fault} is blamed by name, and no step has its bytes`,
    { timeout: 300_000 },
    async () => {
      const grid = await Grid.start({ timing: QUICK })
      try {
        const job = await grid.submit(directJob(4))
        for (let i = 0; i < 3; i++) grid.addVolunteer({ executor: 'reference' })
        grid.addVolunteer({
          name: 'hostile',
          executor: 'reference',
          entry: FAULTY,
          env: { STARLING_FAULT: `${fault}:10` },
        })
        const run = await finishesWhole(grid, job, STEPS)
        assert.ok((run.refusals[code] ?? 0) > 0, `the refusal is counted: ${JSON.stringify(run.refusals)}`)
        const found = grid.watch.events.filter(({ text }) => text.includes(code))
        assert.ok(
          found.some(({ text }) => /gave up step \d+ about hostile/.test(text)),
          found.map(({ text }) => text).join('\n'),
        )
        for (const { text } of found) assert.match(text, /hostile/, 'and nobody else')
        for (const { lossSum, samples } of await grid.records(job))
          assert.ok(Number.isFinite(lossSum) && lossSum / samples < 10, 'no step has what it sent')
      } finally {
        await grid.stop()
      }
    },
  )

test(
  'a rank that sends one member another sum is found by digest, and the run continues as a ring',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: QUICK })
    try {
      const job = await grid.submit(directJob(3))
      for (let i = 0; i < 2; i++) grid.addVolunteer({ executor: 'reference' })
      grid.addVolunteer({
        name: 'liar',
        executor: 'reference',
        entry: FAULTY,
        env: { STARLING_FAULT: 'send-wrong-sum:9' },
      })
      const run = await finishesWhole(grid, job, STEPS)
      assert.ok((run.refusals['digest-mismatch'] ?? 0) > 0, JSON.stringify(run.refusals))
      const texts = grid.watch.events.map(({ text }) => text)
      const found = grid.watch.events.filter(
        ({ kind, text }) => kind === 'refusal' && text.includes('any of the others may have sent them'),
      )
      assert.equal(found.length, 1, texts.join('\n'))
      assert.ok(
        texts.some((text) =>
          text.startsWith('gradients travel around the ring: members of a direct exchange held different bytes'),
        ),
        texts.join('\n'),
      )
    } finally {
      await grid.stop()
    }
  },
)
