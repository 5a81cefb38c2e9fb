// `keep` of a job as its owner sees it: two volunteer processes, `job show` and `job export --version`.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { mlp } from '@starling-grid/model'
import { type JobSpec, readSafetensors, type RunView } from '@starling-grid/protocol'
import { demoJob } from '../src/demo-job.ts'
import { Grid } from '../src/grid/grid.ts'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
const STEPS = 40
const EVERY = 10

test('the best version and one of every ten steps outlive newer ones and a restart', { timeout: 300_000 }, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'starling-keep-'))
  after(() => rm(folder, { recursive: true, force: true }))
  const grid = await Grid.start({})
  after(() => grid.stop())
  const starling = (...args: string[]): Promise<{ status: number; stdout: string; stderr: string }> =>
    new Promise((resolve) => {
      const env = { ...process.env, STARLING_URL: grid.direct, STARLING_TOKEN: grid.token, FORCE_COLOR: undefined }
      execFile(process.execPath, [STARLING, 'job', ...args], { env }, (error, stdout, stderr) =>
        resolve({ status: error === null ? 0 : Number(error.code), stdout, stderr }),
      )
    })
  const optimizer = { type: 'adam', lr: 0.005 } as const
  const job: JobSpec = {
    ...demoJob({ stop: { steps: STEPS }, seed: 3, mode: 'ring', optimizer }),
    model: mlp({ input: [1, 28, 28], hidden: [32], classes: 10, inputScale: 1 / 255 }),
    evaluate: { everySteps: EVERY },
    keep: { best: 1, last: 2, every: EVERY },
    volunteers: { min: 2 },
    public: false,
  }
  await writeFile(join(folder, 'digits.json'), JSON.stringify(job))
  const submitted = await starling('submit', join(folder, 'digits.json'), '--json')
  assert.equal(submitted.status, 0, submitted.stderr)
  const { id } = (JSON.parse(submitted.stdout) as RunView).job
  for (let i = 0; i < 2; i++) grid.addVolunteer({ executor: 'reference' })
  await grid.watch.waitFor('its end', ({ run }) => run?.job.id === id && run.phase === 'finished')
  await grid.killCoordinator()
  await grid.restartCoordinator()

  const { best, kept = [] } = JSON.parse((await starling('show', id, '--json')).stdout) as RunView & { kept?: number[] }
  assert.ok(best !== null)
  assert.ok(kept.includes(best.v), `${best.v} is kept of ${kept.join()}`)
  const marks = new Set(kept.map((v) => Math.floor(v / EVERY)))
  assert.deepEqual(
    [1, 2, 3, 4].filter((mark) => !marks.has(mark)),
    [],
    `one of each ten: ${kept.join()}`,
  )
  assert.match((await starling('show', id)).stdout, new RegExp(`^kept +.*\\b${best.v} \\(best\\)`, 'm'))

  for (const [which, v] of [
    ['best', best.v],
    ['latest', STEPS],
    [String(kept[0]), kept[0]],
  ] as const) {
    const file = join(folder, `${which}.safetensors`)
    const exported = await starling('export', id, '--version', which, '--out', file)
    assert.equal(exported.status, 0, exported.stderr)
    assert.equal(readSafetensors(await readFile(file)).metadata['v'], String(v))
  }
  assert.match((await starling('export', id, '--version', '3')).stderr, /version 3 is not kept; ask for one of \d/)
})
