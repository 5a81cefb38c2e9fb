// Two jobs of different priority on three volunteers share them as their files say, seen by their owner in a terminal.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Grid } from '@starling-grid/cli'
import type { JobSpec, RunView } from '@starling-grid/protocol'
import { auditChain } from '../src/audit.ts'
import { QUICK, slowMember, tinyJob } from './small-job.ts'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
/** enough to be seen by a command that takes seconds to begin on a busy machine */
const STEPS = 300
const FEW_STEPS = 20
const LOOK_MS = 200
/** Of the list, which is a process that keeps a core busy. */
const LIST_MS = 1000
const PATIENCE_MS = 240_000
/** A machine that stands still for seconds costs a connection, and no step while its member is waited for. */
const PATIENT = { ...QUICK, rejoinMs: PATIENCE_MS }

class Owner {
  readonly #grid: Grid
  constructor(grid: Grid) {
    this.#grid = grid
  }

  async says(...args: string[]): Promise<string> {
    const env = { ...process.env, STARLING_URL: this.#grid.url, STARLING_TOKEN: this.#grid.token }
    return (await promisify(execFile)(process.execPath, [STARLING, 'job', ...args], { env })).stdout
  }

  async submits(folder: string, job: JobSpec): Promise<string> {
    const file = join(folder, `${job.name}.json`)
    await writeFile(file, JSON.stringify(job))
    const said = await this.says('submit', file)
    return /^(\S+) begins/.exec(said)?.[1] ?? assert.fail(said)
  }

  /** The list once it says all this, one pattern for each of its lines. */
  async sees(what: string, ...patterns: RegExp[]): Promise<void> {
    let list = ''
    for (const deadline = Date.now() + PATIENCE_MS; Date.now() < deadline;) {
      list = await this.says('list')
      if (patterns.every((pattern) => list.split('\n').some((line) => pattern.test(line)))) return
      await new Promise((resolve) => setTimeout(resolve, LIST_MS))
    }
    assert.fail(`gave up waiting for ${what}; the list is\n${list}`)
  }
}

async function until(grid: Grid, job: string, state: (run: RunView) => boolean): Promise<RunView> {
  for (const deadline = Date.now() + PATIENCE_MS; Date.now() < deadline;) {
    const run = await grid.run(job)
    if (state(run)) return run
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS))
  }
  throw new Error(`gave up waiting for ${job}`)
}

const isFinished = ({ phase }: RunView): boolean => phase === 'finished'

test('three volunteers are divided between two jobs as the files say, and both end', { timeout: 600_000 }, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'starling-share-'))
  const grid = await Grid.start({ timing: PATIENT })
  const owner = new Owner(grid)
  const job = (name: string, steps: number, change: Partial<JobSpec>): JobSpec => ({
    ...tinyJob({ stop: { steps } }),
    name,
    ...change,
  })
  try {
    const low = await owner.submits(folder, job('low', STEPS, { volunteers: { min: 1 } }))
    for (let i = 0; i < 3; i++) grid.addVolunteer(slowMember(4))
    await owner.sees('all three at the first job', /^low-(?!.* finished ).* 0 +3 of at least 1 /)
    const high = await owner.submits(
      folder,
      job('high', STEPS, { seed: 8, priority: 5, volunteers: { min: 2, max: 2 } }),
    )
    await owner.sees(
      'two at the job of the higher priority, and one at the other',
      /^high-(?!.* finished ).* 5 +2 of 2–2 /,
      /^low-(?!.* finished ).* 0 +1 of at least 1 /,
    )
    const third = await owner.submits(folder, job('third', FEW_STEPS, { seed: 9, priority: 2, volunteers: { min: 2 } }))
    const waits = 'waits for 2 more volunteers; 2 work for `high` (priority 5); 1 works for `low` (priority 0)'
    assert.ok((await owner.says('list')).includes(`${third} ${waits}`), await owner.says('list'))
    assert.ok((await owner.says('show', third)).includes(`waiting: ${waits}`))
    for (const id of [high, low, third]) {
      await until(grid, id, isFinished)
      const records = await grid.records(id)
      assert.equal(records.length, id === third ? FEW_STEPS : STEPS)
      const { duplicated } = auditChain(records, 0)
      assert.equal(duplicated, 0)
      const events = await grid.api.events(id)
      const isRepeated = events.some(({ kind }) => kind === 'rewind')
      assert.ok(!isRepeated, `no step is repeated:\n${events.map(({ text }) => text).join('\n')}`)
    }
    for (const child of grid.volunteers) assert.ok(child.alive(), child.lines.join(' | '))
  } finally {
    await grid.stop()
    await rm(folder, { recursive: true, force: true })
  }
})

test('a volunteer that its owner lends to one job works for that one alone', { timeout: 300_000 }, async () => {
  const grid = await Grid.start({ timing: QUICK })
  try {
    const job = (change: Partial<JobSpec>): JobSpec => ({ ...tinyJob({ stop: { steps: 6 } }), ...change })
    const urgent = await grid.submit(job({ name: 'urgent', priority: 9 }))
    const chosen = await grid.submit(job({ name: 'chosen', seed: 8 }))
    grid.addVolunteer({ executor: 'reference', job: chosen })
    await until(grid, chosen, isFinished)
    const { version, departed } = await until(grid, urgent, isFinished) // the choice ends with its job
    assert.equal(version.v, 6)
    assert.deepEqual(
      departed.filter(({ expected }) => !expected),
      [],
    )
    const [first, last] = [await grid.run(chosen), await grid.run(urgent)]
    assert.ok((first.finishedAt ?? 0) <= (last.lastStep?.at ?? 0), 'the chosen job came first')
  } finally {
    await grid.stop()
  }
})
