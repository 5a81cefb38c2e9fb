// Runs over real sockets that end by each criterion of `stop`, and what pages and commands are told of the end.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { type JobSpec, pathTo, ROUTES, type RunEvent, type RunView } from '@starling-grid/protocol'
import Database from 'libsql'
import {
  OWNER,
  QUICK,
  runOf,
  smallJob,
  startCoordinator,
  submit,
  temporaryFolder,
  until,
  volunteer,
} from './fixture.ts'

const LONG = 1000

/** The run of two volunteers that measure an accuracy of one half and a loss of one half, always. */
async function trained(change: Partial<JobSpec>, volunteers = 2): Promise<{ run: RunView; events: RunEvent[] }> {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ volunteers: { min: volunteers }, ...change }))
  for (let i = 0; i < volunteers; i++) volunteer(url)
  await until(url, 'the end', ({ phase }) => phase === 'finished')
  const answer = await fetch(`${url}${pathTo(ROUTES.events, { id })}`, { headers: OWNER })
  return { run: await runOf(url, id), events: ((await answer.json()) as { events: RunEvent[] }).events }
}

interface Ending {
  readonly change: Partial<JobSpec>
  readonly reason: string
  /** steps; an epoch has nine */
  readonly v: number
}

const ENDINGS: readonly Ending[] = [
  { change: { stop: { steps: 4 } }, reason: 'ended after 0.444 epochs: 4 steps are trained', v: 4 },
  { change: { stop: { epochs: 1 } }, reason: 'ended after 1 epoch: its epoch is trained', v: 9 },
  {
    change: { stop: { epochs: LONG, metric: 'accuracy', target: 0.5 } },
    reason: 'ended after 1 epoch: accuracy 0.5 reached the target 0.5',
    v: 9,
  },
  {
    change: { mode: 'async', stop: { epochs: LONG, metric: 'loss', target: 0.5 } },
    reason: 'ended after 1 epoch: loss 0.5 reached the target 0.5',
    v: 9,
  },
  {
    change: { stop: { epochs: LONG, patience: 2 } },
    reason: 'ended after 3 epochs: no better loss than 0.5 of version 9 in 2 validations',
    v: 27,
  },
]

for (const mode of ['ring', 'async'] as const)
  test(`versions are validated in the midst of an epoch, in ${mode} mode, and the best is shown`, async () => {
    const { run, events } = await trained({ mode, stop: { steps: 14 }, evaluate: { everySteps: 4 } })
    const validated = events.filter(({ kind }) => kind === 'validation').map(({ text }) => /\d+/.exec(text)?.[0])
    if (mode === 'ring') assert.deepEqual(validated, ['4', '8', '12', '14'])
    const marks = validated.map((v) => Math.floor(Number(v) / 4))
    assert.deepEqual(marks, [1, 2, 3, 3], `validated: ${validated.join(', ')}`)
    assert.deepEqual([run.version.v, run.best?.v], [14, Number(validated[0])])
  })

for (const { change, reason, v } of ENDINGS)
  test(`a run ends: ${reason}${change.mode === undefined ? '' : `, in ${change.mode} mode`}`, async () => {
    const { run, events } = await trained(change)
    assert.deepEqual([run.reason, run.version.v, run.checkpoint?.v], [reason, v, v])
    assert.equal(run.samplesExpected, run.samplesCommitted, 'progress is whole at the end')
    assert.ok(events.some(({ kind, text }) => kind === 'run' && text === reason))
    assert.deepEqual([run.best?.v, run.best?.loss], [Math.min(9, v), 0.5])
  })

test('a run ends after its minutes of training, and says how long it still takes', async () => {
  const { url } = await startCoordinator()
  const { id } = await submit(url, smallJob({ stop: { minutes: 0.05 } }))
  for (let i = 0; i < 2; i++) volunteer(url, { stepMs: 20 })
  const under = await until(url, 'a run under way', ({ version, etaSeconds }) => version.v > 8 && etaSeconds !== null)
  assert.ok((under.etaSeconds ?? 9) <= 3, `${under.etaSeconds} s`)
  assert.equal(under.job.epochs, null)
  const run = await until(url, 'the end', ({ phase }) => phase === 'finished')
  assert.match((await runOf(url, id)).reason, /^ended after [\d.]+ epochs?: 0\.05 minutes of training are over$/)
  assert.equal(run.samplesExpected, run.samplesCommitted)
})

test('one volunteer alone ends no run by what it measures', async () => {
  const { run, events } = await trained({ stop: { epochs: 2, metric: 'accuracy', target: 0.5, patience: 1 } }, 1)
  assert.deepEqual([run.reason, run.version.v], ['ended after 2 epochs: all 2 epochs are trained', 18])
  assert.equal(run.best, null)
  assert.ok(events.some(({ text }) => text.endsWith('it does not count for the end of the run')))
})

test('a job that an older program stored, with its names of fields, goes on to its end', async () => {
  const dataDir = await temporaryFolder()
  const before = await startCoordinator({ dataDir })
  const { id } = await submit(before.url, smallJob({ stop: { epochs: 50, steps: 12 }, evaluate: { everyEpochs: 7 } }))
  const members = [volunteer(before.url, { stepMs: 20 }), volunteer(before.url, { stepMs: 20 })]
  await until(before.url, 'some steps', ({ version }) => version.v >= 2)
  await before.stop()
  for (const member of members) member.close()
  const olderFields = { epochs: 50, maxSteps: 12, validateEvery: 7 }
  rewriteStored(dataDir, (spec) => ({ ...spec, stop: undefined, evaluate: undefined, ...olderFields }))

  const { url } = await startCoordinator({ dataDir, timing: QUICK })
  const opened = await runOf(url, id)
  assert.deepEqual(
    [opened.job.stop, opened.job.evaluate, opened.job.epochs],
    [{ epochs: 50, steps: 12 }, { everyEpochs: 7 }, 50],
  )
  for (let i = 0; i < 2; i++) volunteer(url)
  const run = await until(url, 'the end', ({ phase }) => phase === 'finished')
  assert.equal(run.version.v, 12)
})

/** The description of the only job, as the older program would have written it. */
function rewriteStored(dataDir: string, older: (spec: JobSpec) => object): void {
  const database = new Database(join(dataDir, 'state.db'))
  const { description } = database.prepare('SELECT description FROM jobs').get() as { description: string }
  const job = JSON.parse(description) as { spec: JobSpec }
  const written = JSON.stringify({ ...job, spec: older(job.spec) })
  database.prepare('UPDATE jobs SET description = ?').run(written)
  database.close()
}
