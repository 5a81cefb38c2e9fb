// A program that uses @starling-grid/client as it is documented, against processes of the coordinator and a volunteer.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { connect, type JobSpec, mlp } from '@starling-grid/client'
import type { RunEvent } from '@starling-grid/protocol'
import { demoJob } from '../src/demo-job.ts'
import { Grid } from '../src/grid/grid.ts'

const PROGRAM = fileURLToPath(new URL('../../examples/train-and-predict.ts', import.meta.url))
const TSX = import.meta.resolve('tsx')

let grid: Grid
before(async () => {
  grid = await Grid.start({})
})
after(() => grid.stop())

test('a program submits a job, watches it over a restart of the coordinator, and predicts with its model', async () => {
  const env = { ...process.env, STARLING_URL: grid.direct, STARLING_TOKEN: grid.token }
  const child = spawn(process.execPath, ['--import', TSX, PROGRAM, '--executor', 'reference'], { env })
  after(() => child.kill('SIGKILL'))
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (piece: Buffer) => {
      said += piece.toString()
    })
  const ended = once(child, 'close')
  const says = async (pattern: RegExp): Promise<void> => {
    while (!pattern.test(said))
      await Promise.race([once(child.stdout, 'data'), ended.then(() => assert.match(said, pattern))])
  }
  await says(/^submitted /m)
  grid.addVolunteer({ executor: 'reference' })
  await says(/^step \d+: loss/m)
  await grid.killCoordinator()
  await says(/^waiting: /m)
  await grid.restartCoordinator()
  const [status] = (await ended) as [number]
  assert.equal(status, 0, said)
  assert.match(said, /^step 60: loss 0\.\d+$/m)
  assert.match(said, /^ended: ended after [\d.]+ epochs: 60 steps are trained$/m)
  for (const digit of [0, 1, 7]) assert.match(said, new RegExp(`^a ${digit} is class ${digit}, \\d+ %$`, 'm'), said)
})

const byTime = (a: RunEvent, b: RunEvent): number => a.at - b.at || (a.text < b.text ? -1 : 1)

test('a watch has each event once and ends with the run, even when it begins later; refusals have codes', async () => {
  const options = { url: grid.direct, token: grid.token }
  const own = await connect(options)
  const [run] = (await own.jobs()).toReversed()
  assert.ok(run !== undefined && run.phase === 'finished')
  const updates = []
  for await (const update of own.job(run.job.id).watch()) updates.push(update)
  const last = updates.at(-1)
  assert.ok(last?.type === 'end' && last.run.phase === 'finished')
  const seen = updates.flatMap((update) => (update.type === 'event' ? [update.event] : []))
  assert.equal(new Set(seen.map((event) => JSON.stringify(event))).size, seen.length)
  // What members did is told while the run is in memory, and not kept.
  const listed = await own.api.events(run.job.id)
  const both = seen.filter(({ text }) => listed.some((one) => one.text === text))
  assert.ok(both.length > 2 && both.some(({ text }) => text === last.run.reason))
  // A watch has an event when it is durable: of two at about the same time the later one may come first.
  assert.deepEqual(
    both.toSorted(byTime),
    listed.filter(({ text }) => seen.some((one) => one.text === text)).toSorted(byTime),
  )
  assert.deepEqual(
    updates.flatMap((update) => (update.type === 'step' ? [update.step.v] : [])),
    [60],
  )
  const spec: JobSpec = {
    ...demoJob({ stop: { epochs: 1 }, seed: 1 }),
    model: mlp({ input: [1, 28, 28], hidden: [8], classes: 10 }),
  }
  const stranger = await connect({ ...options, token: 'wrong' })
  await assert.rejects(stranger.submit(spec), { code: 'token-required' })
  await assert.rejects(own.submit('nowhere.yaml'), { code: 'job-invalid' })
  await assert.rejects(stranger.job(run.job.id).watch().next(), { code: 'token-required' })
  await assert.rejects(own.job('nothing-000000').model(), { code: 'message-unexpected' })
})
