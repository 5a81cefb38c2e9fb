// Real processes whose lines are long: what they measure takes their gradients from the ring to the direct exchange,
// and keeps them there.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Grid } from '@starling-grid/cli'
import type { Exchange, JobSpec, RunEvent, RunView } from '@starling-grid/protocol'
import { finishesWhole, QUICK, smallJob } from './small-job.ts'

const FAULTY = fileURLToPath(new URL('../src/faulty-volunteer.ts', import.meta.url))
/** ms one way: four members wait for six of them around a ring, and for two in a direct exchange */
const LATENCY_MS = 30
/** of a generation before what it measured counts (coordinator/src/run/policy/exchange-choice.ts), and some */
const SETTLED_STEPS = 24
/** as a ring of four, as a direct exchange of three until the newcomer is there, and as one of four */
const STEPS = 160
/** Steps are quicker than a newcomer can follow over its line: it is admitted soon, and they wait for it. */
const TIMING = QUICK
/** ms for a state that comes within seconds on a machine that is not busy */
const WAIT_MS = 60_000
const COSTS =
  /exchange would take (\d+) ms around the ring and (\d+) ms as a direct exchange \((\d+\.\d) ms from one to another/

/**
 * A model whose computing takes a few ms a step, and whose gradient is in one frame: latency is nearly all of a step.
 */
function job(): JobSpec {
  const layers = [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }] as const
  const settings = smallJob({ stop: { steps: STEPS }, minVolunteers: 4, optimizer: { type: 'sgd', lr: 0.05 } })
  return { ...settings, model: { name: 'linear', input: [1, 28, 28], layers: [...layers] }, exchange: 'auto' }
}

/** What the run's history says of the way that gradients take: each time that it changed. */
function turns(events: readonly RunEvent[]): string[] {
  return events.map(({ text }) => text).filter((text) => text.startsWith('gradients travel '))
}

/** So many members train, and their gradients take this way. */
function isTraining(run: RunView | undefined, type: Exchange, members: number): run is RunView {
  return (
    run?.phase === 'ring' &&
    run.exchange?.type === type &&
    run.members.filter(({ rank }) => rank !== null).length === members
  )
}

test(
  'over slow links a run changes from ring to direct exchange by measurement, and loses no block',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: TIMING })
    try {
      const id = await grid.submit(job())
      const join = (name: string) =>
        grid.addVolunteer({
          name,
          executor: 'reference',
          entry: FAULTY,
          env: { STARLING_FAULT: `long-lines:${LATENCY_MS}` },
        })
      for (const name of ['one', 'two', 'three']) join(name)
      const leaver = join('leaver')

      await grid.watch.waitFor(
        'a ring of four that knows what its steps cost',
        ({ run }) => isTraining(run, 'ring', 4) && run.version.v >= SETTLED_STEPS,
        WAIT_MS,
      )
      assert.deepEqual(turns(grid.watch.events), [], 'it began in the ring')
      leaver.kill('SIGTERM') // a ballot: the next generation takes the way that is cheaper by now

      const begun = await grid.watch.waitFor(
        'a direct exchange of three',
        ({ run }) => isTraining(run, 'direct', 3) && run.version.v,
        WAIT_MS,
      )
      const measured = await grid.watch.waitFor(
        'its own measurement in the place of the prediction',
        ({ run }) => isTraining(run, 'direct', 3) && run.version.v >= begun + SETTLED_STEPS && run.exchange?.costs,
        WAIT_MS,
      )
      assert.ok(
        measured !== null && measured.direct < measured.ring,
        `it costs less by its own measurement too: ${JSON.stringify(measured)}`,
      )
      join('newcomer') // another ballot, with both ways measured
      await grid.watch.waitFor('a direct exchange of four', ({ run }) => isTraining(run, 'direct', 4), WAIT_MS)

      const end = await finishesWhole(grid, id, STEPS)
      assert.equal(end.checkpoint?.members, 4)
      assert.ok(
        (await grid.records(id)).every(({ kind }) => kind === 'ring'),
        'it never left ring mode',
      )
      const [turn = '', ...later] = turns(grid.watch.events)
      assert.deepEqual(later, [], 'it stayed a direct')
      assert.match(turn, /^gradients travel from each member to each \(direct exchange\): /)
      const [, ring = 0, direct = 0, latency = 0] = (COSTS.exec(turn) ?? []).map(Number)
      assert.ok(direct > 0 && direct < ring, `the history has both predicted costs: ${turn}`)
      assert.ok(latency >= LATENCY_MS, `and what a line was measured to take: ${latency} ms`)
    } finally {
      await grid.stop()
    }
  },
)
