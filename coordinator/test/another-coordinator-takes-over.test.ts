// Two coordinators share a database and blobs. The one that has the job is killed in the midst of a training, and the
// other one ends it with the same volunteers.
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { demoJob, Grid } from '@starling-grid/cli'
import { mlp } from '@starling-grid/model'
import type { StepRecord } from '@starling-grid/protocol'
import { startPostgres } from './postgres.ts'

const STEPS = 400
/** times that a test need not wait out */
const QUICK = { admitMs: 300, rejoinMs: 6000, quietMs: 3000 }
const JOB = {
  ...demoJob({ stop: { steps: STEPS }, seed: 7, mode: 'ring', minVolunteers: 2 }),
  model: mlp({ input: [1, 28, 28], hidden: [32], classes: 10 }),
  blockSamples: 8,
  batchBlocks: 6,
}
const TOKEN = 'the-owner-of-both-coordinators'

const postgres = await startPostgres()
const folder = await mkdtemp(join(tmpdir(), 'starling-two-'))
after(async () => {
  await postgres?.stop()
  await rm(folder, { recursive: true, force: true })
})
const skip = postgres === undefined && 'PostgreSQL is not here'

let grids = 0

/** Two coordinators of one database and one folder of blobs; `throughLine`: how the first reaches the database. */
async function two(throughLine: (url: string) => string = (url) => url): Promise<readonly [Grid, Grid]> {
  const number = ++grids
  const database = postgres?.database(`grid_${number}`) ?? ''
  const blobs = pathToFileURL(join(folder, `blobs-${number}`)).href
  const start = (name: string, state: string): Promise<Grid> =>
    Grid.start({
      dataDir: join(folder, `${name}-${number}`),
      token: TOKEN,
      timing: QUICK,
      env: { STARLING_STATE: state, STARLING_BLOBS: blobs },
    })
  return [await start('first', throughLine(database)), await start('second', database)]
}

/** A job at the first coordinator, trained by a volunteer of each. */
async function training([first, second]: readonly [Grid, Grid]): Promise<string> {
  const job = await first.submit(JOB)
  first.addVolunteer({ executor: 'reference' })
  second.addVolunteer({ executor: 'reference' })
  await first.watch.waitFor('steps', ({ run }) => (run?.version.v ?? 0) >= 10 && run)
  return job
}

/** The whole training is there, each step and each block once, and the same volunteers made it. */
async function endsWhole(
  { first, second, job }: { readonly first: Grid; readonly second: Grid; readonly job: string },
  before: readonly StepRecord[],
): Promise<void> {
  const run = await second.watch.waitFor('the end', (watch) => watch.run?.phase === 'finished' && watch.run, 240_000)
  const records = await second.records(job)
  assert.deepEqual(records.slice(0, before.length), before, 'what was committed is there')
  assert.deepEqual(
    records.map(({ v }) => v),
    Array.from({ length: STEPS }, (_, i) => i + 1),
    'no step is missing',
  )
  const blocks = records.flatMap((record) => record.blocks)
  assert.equal(new Set(blocks).size, blocks.length, 'no block counts twice')
  assert.equal(run.checkpoint?.agreeing, run.checkpoint?.members, 'every replica is bit-identical')
  const rewinds = second.watch.events.filter((event) => event.kind === 'rewind')
  assert.deepEqual(rewinds, [])
  for (const child of [...first.volunteers, ...second.volunteers]) assert.ok(child.alive(), child.lines.join(' | '))
}

async function stopAll(...all: readonly Grid[]): Promise<void> {
  for (const grid of all) await grid.stop()
}

test(
  'another coordinator goes on with the job of one that was killed, and no step is lost or counted twice',
  { skip, timeout: 300_000 },
  async () => {
    const [first, second] = await two()
    try {
      const job = await training([first, second])
      const before = await first.records(job)
      await first.killCoordinator()
      await endsWhole({ first, second, job }, before)
    } finally {
      await stopAll(first, second)
    }
  },
)

test(
  'a coordinator that is told to end gives its job to another one, where the same volunteers end it',
  { skip, timeout: 300_000 },
  async () => {
    const [first, second] = await two()
    try {
      const job = await training([first, second])
      const before = await first.records(job)
      first.coordinator.kill('SIGTERM')
      await first.coordinator.ended
      await endsWhole({ first, second, job }, before)
      assert.ok(second.watch.events.some(({ text }) => text.includes('checkpoint of version')))
    } finally {
      await stopAll(first, second)
    }
  },
)

test(
  'a coordinator that its database does not reach any more commits nothing, and another one goes on',
  { skip, timeout: 300_000 },
  async () => {
    const line = await openLine(Number(new URL(postgres?.url ?? '').port))
    const [first, second] = await two((url) => url.replace(/:\d+\//, `:${line.port}/`))
    try {
      const job = await training([first, second])
      const before = await first.records(job)
      line.cut()
      await second.watch.waitFor('the job at the other one', ({ run }) => run?.job.id === job && run)
      line.mend()
      await endsWhole({ first, second, job }, before)
      // What the first one did meanwhile is in no history; it sends those who ask to the owner.
      assert.deepEqual(await first.api.records(job), await second.api.records(job))
      assert.ok(first.coordinator.alive(), first.coordinator.lines.join(' | '))
    } finally {
      await stopAll(first, second)
      line.close()
    }
  },
)

interface Line {
  readonly port: number
  /** Nothing passes, and nothing can be opened. */
  cut(): void
  mend(): void
  close(): void
}

/** Between a coordinator and the database. */
async function openLine(port: number): Promise<Line> {
  let isCut = false
  const sockets = new Set<Socket>()
  const line = createServer((near) => {
    if (isCut) return near.destroy()
    const far = connect(port, '127.0.0.1')
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket)
      socket.on('error', () => undefined)
      socket.on('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
      socket.pipe(other)
    }
    return undefined
  })
  await new Promise<void>((resolve) => line.listen(0, '127.0.0.1', resolve))
  const cut = (): void => {
    isCut = true
    for (const socket of sockets) socket.destroy()
  }
  return {
    port: (line.address() as AddressInfo).port,
    cut,
    mend() {
      isCut = false
    },
    close() {
      cut()
      line.close()
    },
  }
}
