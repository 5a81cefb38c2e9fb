// `starling job` as an owner uses it: a coordinator and a volunteer in processes of their own, and real digits.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { mlp } from '@starling-grid/model'
import { type JobList, type JobSpec, readSafetensors, type RunView } from '@starling-grid/protocol'
import * as ort from 'onnxruntime-web'
import { demoJob } from '../src/demo-job.ts'
import { Grid } from '../src/grid/grid.ts'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))

interface Ended {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

/** A command that runs. */
function begin(args: readonly string[], env: NodeJS.ProcessEnv = {}, command = 'job') {
  const clean = { ...process.env, STARLING_URL: undefined, STARLING_TOKEN: undefined, FORCE_COLOR: undefined }
  const child = spawn(process.execPath, [STARLING, command, ...args], { env: { ...clean, ...env } })
  const pieces = { stdout: [] as Buffer[], stderr: [] as Buffer[] }
  for (const stream of ['stdout', 'stderr'] as const)
    child[stream].on('data', (piece: Buffer) => void pieces[stream].push(piece))
  const textOf = (stream: 'stdout' | 'stderr'): string => Buffer.concat(pieces[stream]).toString()
  after(() => child.kill('SIGKILL'))
  const ended = once(child, 'close').then(([status]): Ended => ({
    status: status as number | null,
    stdout: textOf('stdout'),
    stderr: textOf('stderr'),
  }))
  return {
    ended,
    /** Resolves when it printed this. */
    async says(pattern: RegExp): Promise<void> {
      while (!pattern.test(textOf('stdout'))) await Promise.race([once(child.stdout, 'data'), ended.then(missing)])
      function missing(): never {
        throw new Error(`expected ${pattern} of the command, got: ${textOf('stdout')}${textOf('stderr')}`)
      }
    },
  }
}

/** Rows of pixels from 0 to 255 of the first images of a digit. */
async function pixelsOf(digit: number, count: number): Promise<string[]> {
  const path = join(dirname(createRequire(import.meta.url).resolve('mnist')), 'digits', `${digit}.json`)
  const { data } = JSON.parse(await readFile(path, 'utf8')) as { readonly data: readonly number[] }
  const image = (i: number): string =>
    data
      .slice(i * 784, (i + 1) * 784)
      .map((value) => Math.round(255 * value))
      .join()
  return Array.from({ length: count }, (_, i) => image(i))
}

/** so many that a watch sees some of them, and the coordinator can be killed between two */
const STEPS = 200

describe('an owner at a terminal', { timeout: 300_000 }, () => {
  const optimizer = { type: 'adam', lr: 0.005 } as const
  const job: JobSpec = {
    ...demoJob({ stop: { epochs: 2, steps: STEPS }, seed: 3, mode: 'ring', optimizer }),
    model: mlp({ input: [1, 28, 28], hidden: [32], classes: 10, inputScale: 1 / 255 }),
    public: false,
  }
  let grid: Grid
  let folder: string
  let tokenFile: string

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'starling-job-'))
    grid = await Grid.start({})
    tokenFile = join(folder, 'token')
    await writeFile(tokenFile, `${grid.token}\n`, { mode: 0o600 })
    await writeFile(join(folder, 'digits.json'), JSON.stringify(job))
  })
  after(async () => {
    await grid.stop()
    await rm(folder, { recursive: true, force: true })
  })

  const starling = (...args: string[]): Promise<Ended> =>
    begin(args, { STARLING_URL: grid.direct, STARLING_TOKEN: grid.token }).ended

  test('submits a job, sees it, follows it over a restart of the coordinator, and takes its model home', async () => {
    assert.match((await starling('list')).stdout, /^No jobs\./)
    const submitted = await starling('submit', join(folder, 'digits.json'), '--json')
    assert.equal(submitted.status, 0, submitted.stderr)
    const { job: own } = JSON.parse(submitted.stdout) as RunView
    assert.match((await starling('list')).stdout, new RegExp(`${own.id} +Handwritten digits +waiting`))
    const page = await starling('show', own.id.slice(0, -2))
    assert.match(page.stdout, /^state +waiting: waits for 1 more volunteer$/m)
    const watching = begin(['watch', own.id], { STARLING_URL: grid.direct, STARLING_TOKEN: grid.token })
    await watching.says(/^waiting/m)
    grid.addVolunteer({ executor: 'reference' })
    await watching.says(/^training .*loss/m)
    await grid.killCoordinator()
    await watching.says(/^no answer, trying again/m)
    await grid.restartCoordinator()
    const { status, stdout, stderr } = await watching.ended
    assert.equal(status, 0, stderr)
    assert.match(stdout, new RegExp(String.raw`is finished: ended after [\d.]+ epochs: ${STEPS} steps are trained\n$`))
    assert.equal(stdout.includes('\u001b'), false, 'a pipe gets lines')
    const ended = JSON.parse((await starling('show', own.id, '--json')).stdout) as RunView
    assert.equal(ended.version.v, STEPS)
    assert.ok(ended.lastStep !== null && ended.lastStep.v === STEPS && ended.lastValidation?.v === STEPS)
    await exportsModel(own.id)
    assert.match(
      (await starling('logs', own.id)).stdout,
      new RegExp(String.raw`^\S+Z  run +ended after [\d.]+ epochs: ${STEPS} steps are trained$`, 'm'),
    )
    const listed = JSON.parse((await starling('list', '--json')).stdout) as JobList
    assert.deepEqual(
      listed.jobs.map((run) => [run.job.id, run.phase]),
      [[own.id, 'finished']],
    )
  })

  async function exportsModel(id: string): Promise<void> {
    const file = join(folder, 'model.safetensors')
    const exported = await starling('export', id, '--out', file, '--json')
    assert.equal(exported.status, 0, exported.stderr)
    const bytes = await readFile(file)
    assert.deepEqual(JSON.parse(exported.stdout), { job: id, file, bytes: bytes.byteLength })
    assert.equal(readSafetensors(bytes).metadata['v'], String(STEPS))
    assert.equal((await stat(file)).mode & 0o077, 0)
    await exportsOldest(id)
    await exportsOnnx(id)
    await answersDigits(id)
  }

  /** Of the versions that are kept, and refuses others. */
  async function exportsOldest(id: string): Promise<void> {
    const [{ v } = assert.fail()] = await grid.api.checkpoints(id)
    const file = join(folder, 'oldest.safetensors')
    const exported = await starling('export', id, '--version', String(v), '--out', file)
    assert.equal(exported.status, 0, exported.stderr)
    assert.equal(readSafetensors(await readFile(file)).metadata['v'], String(v))
    const absent = await starling('export', id, '--version', '39999')
    assert.equal(absent.status, 1)
    assert.match(absent.stderr, new RegExp(String.raw`version 39999 is not kept; ask for one of (\d+, )*${STEPS}`))
  }

  async function exportsOnnx(id: string): Promise<void> {
    const file = join(folder, 'model.onnx')
    const exported = await starling('export', id, '--version', 'latest', '--format', 'onnx', '--out', file, '--json')
    assert.equal(exported.status, 0, exported.stderr)
    const bytes = await readFile(file)
    assert.deepEqual(JSON.parse(exported.stdout), { job: id, file, bytes: bytes.byteLength })
    const session = await ort.InferenceSession.create(bytes, { executionProviders: ['wasm'] })
    const pixels = (await pixelsOf(7, 20)).flatMap((row) => row.split(',').map((pixel) => Number(pixel) / 255))
    const { output } = await session.run({ input: new ort.Tensor('float32', pixels, [20, 1, 28, 28]) })
    const scores = [...((output?.data ?? []) as Float32Array)]
    const best = Array.from({ length: 20 }, (_, i) => scores.slice(10 * i, 10 * i + 10))
    assert.ok(best.filter((row) => row.indexOf(Math.max(...row)) === 7).length > 12)
    await session.release()
    assert.deepEqual(
      (await readdir(folder)).filter((name) => name.endsWith('.part')),
      [],
    )
  }

  /** Twenty digits of each kind, as rows of pixels. */
  async function answersDigits(id: string): Promise<void> {
    const file = join(folder, 'digits.csv')
    const names = Array.from({ length: 10 }, (_, digit) => Array.from({ length: 20 }, () => digit)).flat()
    const rows = await Promise.all(Array.from({ length: 10 }, (_, digit) => pixelsOf(digit, 20)))
    await writeFile(file, rows.flat().join('\n'))
    const args = ['--job', id, file, '--no-header', '--json', '--top', '1', '--executor', 'reference']
    const env = { STARLING_URL: grid.direct, STARLING_TOKEN: grid.token }
    const { status, stdout, stderr } = await begin(args, env, 'predict').ended
    assert.equal(status, 0, stderr)
    const lines = stdout.trim().split('\n')
    const found = lines.map((line) => JSON.parse(line) as { classes: [{ class: string }] })
    assert.equal(found.length, names.length)
    const right = found.filter(({ classes: [best] }, i) => best.class === `class ${names[i]}`).length
    assert.ok(right > 0.6 * names.length, `${right} of ${names.length} digits are right`)
  }

  test('forks a job: the same with other fields, from its newest checkpoint or the one that is named', async () => {
    const [parent] = (await grid.api.jobs()).jobs.filter(({ phase }) => phase === 'finished')
    const { id } = parent?.job ?? assert.fail()
    const changes = join(folder, 'changes.yaml')
    await writeFile(changes, '# a comment\nstop: { steps: 3, epochs: null, minutes: 5 }\noptimizer: { lr: 0.0005 }\n')
    const forked = await starling('fork', id.slice(0, -2), changes, '--json')
    assert.equal(forked.status, 0, forked.stderr)
    const { job: fork } = JSON.parse(forked.stdout) as RunView
    await grid.watch.waitFor('its end', ({ run }) => run?.job.id === fork.id && run.phase === 'finished')
    const { from, optimizer: changed, stop, model } = await grid.api.spec(fork.id)
    assert.deepEqual(
      [from, stop],
      [
        { job: id, version: STEPS },
        { steps: 3, minutes: 5 },
      ],
    )
    assert.deepEqual([changed, model], [{ type: 'adam', lr: 0.0005 }, job.model])
    const [last, first] = [(await grid.records(id)).at(-1), (await grid.records(fork.id))[0]]
    const [lossOf, targets] = [
      (record: typeof first) => (record?.lossSum ?? 9) / (record?.targets ?? 1),
      first?.targets,
    ]
    assert.ok(targets === last?.targets && lossOf(first) < 2 * lossOf(last), `${lossOf(last)}, then ${lossOf(first)}`)

    const other = await starling('fork', id, '--version', '7')
    assert.equal(other.status, 1)
    assert.match(
      other.stderr,
      new RegExp(`from\\.version: expected latest or one of .*${STEPS}, got 7; only these are kept`),
    )
    await writeFile(changes, '# a comment\nstop: { steps: two }\n')
    const wrong = await starling('fork', id, changes)
    assert.equal(wrong.status, 1)
    assert.match(wrong.stderr, /changes\.yaml:2:9: stop\.steps: expected a whole number .*, got "two"/)
  })

  test('deletes a job when that is confirmed, and not while it runs', async () => {
    const { id } = (await grid.api.submit({ ...job, stop: { steps: 100_000, epochs: 50 } })).job
    const unasked = await starling('delete', id)
    assert.equal(unasked.status, 2)
    assert.match(unasked.stderr, /say --yes to delete without asking/)
    await grid.watch.waitFor('a step', ({ run }) => run?.job.id === id && run.version.v >= 1)
    const running = await starling('delete', id, '--yes')
    assert.equal(running.status, 1)
    assert.match(running.stderr, new RegExp(`stop it first with: starling job stop ${id}`))
    await starling('stop', id)
    await grid.watch.waitFor('its end', ({ run }) => run?.job.id === id && run.phase === 'finished')
    assert.equal((await starling('delete', id, '--yes')).stdout, `${id} is deleted\n`)
    assert.equal((await starling('list')).stdout.includes(id), false)
    assert.equal((await starling('show', id)).status, 2)
  })

  test('lets a job rest at a checkpoint, also over a restart, and go on from there', async () => {
    const { id } = (await grid.api.submit({ ...job, stop: { steps: 100_000, epochs: 50 } })).job
    await grid.watch.waitFor('some steps', ({ run }) => run?.job.id === id && run.version.v >= 5)
    assert.match((await starling('pause', id)).stdout, /is paused; its volunteers go to other jobs\n$/)
    const resting = await grid.watch.waitFor(
      'a checkpoint of the last step',
      ({ run }) => run?.job.id === id && run.paused && run.checkpoint?.v === run.version.v && run,
    )
    await grid.killCoordinator()
    await grid.restartCoordinator()
    const later = await grid.run(id)
    assert.deepEqual([later.paused, later.version.v], [true, resting.version.v])
    assert.match((await starling('list')).stdout, new RegExp(`${id} .* paused `))
    assert.match((await starling('resume', id)).stdout, /goes on when it has volunteers\n$/)
    await grid.watch.waitFor('more steps', ({ run }) => run?.job.id === id && run.version.v > resting.version.v + 3)
    const events = await grid.api.events(id)
    assert.deepEqual(
      events.filter(({ kind }) => kind === 'rewind'),
      [],
    )
    await grid.api.stop(id)
  })

  test('ends a job early with the epoch that it is in', async () => {
    const { id } = (await grid.api.submit({ ...job, stop: { steps: 100_000, epochs: 50 } })).job
    const { status, stdout } = await starling('stop', id)
    assert.equal(status, 0)
    const [, epoch] = /ends with epoch (\d+), and its model is kept/.exec(stdout) ?? assert.fail(stdout)
    const { epochs } = (await grid.run(id)).job
    assert.equal(epochs, Number(epoch), 'the epoch that it was in when the command came')
    assert.ok(epochs < 50, `${epochs}`)
  })

  test('a name that is nearly a job is answered with the job that is meant, and wrong use ends with 2', async () => {
    const [{ job: first } = assert.fail()] = (await grid.api.jobs()).jobs
    const wrong = await starling('show', first.id.replace('digits', 'digist'))
    assert.equal(wrong.status, 2)
    assert.equal(wrong.stdout, '')
    assert.ok(wrong.stderr.includes(`did you mean ${first.id}`), wrong.stderr)
    assert.equal((await starling('show')).status, 2)
    assert.equal((await starling('frobnicate')).status, 2)
    assert.match((await starling('--help')).stdout, /submit .*<file>/)
  })

  test('threat 4: the token comes from a file of this user or the environment, never from an address', async () => {
    const url = { STARLING_URL: grid.direct }
    assert.equal((await begin(['list', '--token-file', tokenFile, '--json'], url).ended).status, 0)
    await chmod(tokenFile, 0o644)
    const open = await begin(['list', '--token-file', tokenFile], url).ended
    assert.equal(open.status, 2)
    assert.match(open.stderr, /mode 644; run `chmod 600 /)
    await chmod(tokenFile, 0o600)
    const without = await begin(['submit', join(folder, 'digits.json'), '--data-dir', folder], url).ended
    assert.equal(without.status, 1)
    assert.match(without.stderr, /expected the token of an owner.*\(token-required\)\n$/)
    const { host } = new URL(grid.direct)
    const inside = await begin(['list', '--url', `http://owner:secret@${host}`]).ended
    assert.equal(inside.status, 2)
    assert.match(inside.stderr, /expected an address without a token/)
    assert.equal((await begin(['list', '--token', grid.token], url).ended).status, 2)
  })

  test('without a coordinator the command says where it looked, and what to check', async () => {
    const { status, stderr } = await begin(['list', '--url', 'http://127.0.0.1:9', '--data-dir', folder]).ended
    assert.equal(status, 1)
    assert.match(
      stderr,
      /^expected a coordinator at http:\/\/127\.0\.0\.1:9, got .*ECONNREFUSED.*\(coordinator-lost\)\n$/,
    )
  })
})
