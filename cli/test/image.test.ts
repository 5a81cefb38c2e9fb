// The container image without an engine, which not every machine has. What `deploy/Containerfile` builds is built in a
// folder, line by line, and what it starts is started from there: as a user without rights, on a root that is
// read-only. The base images are not fetched: this machine's Node takes their place.
import assert from 'node:assert/strict'
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, chownSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { CoordinatorApi } from '@starling-grid/client/coordinator-api'
import type { JobSpec } from '@starling-grid/protocol'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
/** of the image's user `node` */
const USER = 1000
const MOST_MEGABYTES = 520
const LIMIT_MS = 900_000
const START_MS = 120_000
const TOKEN = 'the-owner-token-of-tests'

const isPossible = process.platform === 'linux' && process.getuid?.() === 0 && existsSync('/usr/bin/unshare')
const skip = !isPossible && 'the image is built in a folder and run as another user: that needs root on Linux'

const place = mkdtempSync(join(tmpdir(), 'starling-image-'))
after(() => rmSync(place, { recursive: true, force: true }))

interface Instruction {
  readonly name: string
  readonly rest: string
}

interface Stage {
  readonly instructions: readonly Instruction[]
}

function stagesIn(file: string): readonly Stage[] {
  const lines = file
    .replaceAll(/^\s*#.*$/gm, '')
    .replaceAll(/\\\n/g, ' ')
    .split('\n')
  const all = lines.flatMap((line): Instruction[] => {
    const [, name, rest] = /^([A-Z]+)\s+(.*)$/.exec(line.trim()) ?? []
    return name === undefined || rest === undefined ? [] : [{ name, rest }]
  })
  const starts = all.flatMap(({ name }, i) => (name === 'FROM' ? [i] : []))
  return starts.map((start, i) => ({ instructions: all.slice(start + 1, starts[i + 1]) }))
}

/** Paths of the image are folders of this test. */
const inPlace = (text: string): string =>
  text.replaceAll(/(?<![\w/.])\/(app|web|data|home\/starling)\b/g, `${place}/$1`)

/** Lines such as `docs/images`, `starling-model*` and folders of any depth; others are none that this reads. */
function ignoredBy(lines: readonly string[]): (path: string) => boolean {
  const patterns = lines
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      assert.match(line, /^(\*\*\/)?[\w./-]+\*?$/, `.dockerignore: ${line}`)
      const body = line
        .replace('**/', '')
        .replaceAll('.', String.raw`\.`)
        .replaceAll('*', '[^/]*')
      return new RegExp(`${line.startsWith('**/') ? '(^|/)' : '^'}${body}(/|$)`)
    })
  return (path) => patterns.some((pattern) => pattern.test(path))
}

/** `COPY . .` */
function copyContext(into: string): void {
  const isIgnored = ignoredBy(readFileSync(`${ROOT}.dockerignore`, 'utf8').split('\n'))
  const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '-z'], { cwd: ROOT })
  for (const file of files.toString().split('\0')) {
    if (file === '' || isIgnored(file) || !existsSync(ROOT + file)) continue
    mkdirSync(dirname(join(into, file)), { recursive: true })
    cpSync(ROOT + file, join(into, file), { preserveTimestamps: true })
  }
}

function build({ instructions }: Stage): void {
  const app = join(place, 'app')
  for (const { name, rest } of instructions)
    switch (name) {
      case 'WORKDIR':
        mkdirSync(inPlace(rest), { recursive: true })
        break
      case 'COPY':
        assert.equal(rest, '. .')
        copyContext(app)
        break
      case 'RUN':
        execFileSync('sh', ['-ec', inPlace(rest)], { cwd: app, stdio: ['ignore', 'ignore', 'pipe'], env: plain() })
        break
      default:
        assert.fail(`expected no ${name} in the first stage`)
    }
}

/** Nothing of this process but how programs are found. */
function plain(more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const { PATH, HOME } = process.env
  return { PATH, HOME, ...more }
}

function environmentOf({ instructions }: Stage): NodeJS.ProcessEnv {
  const pairs = instructions.flatMap(({ name, rest }) => (name === 'ENV' ? rest.trim().split(/\s+/) : []))
  return Object.fromEntries(pairs.map((pair) => inPlace(pair).split('=', 2) as [string, string]))
}

const listOf = ({ instructions }: Stage, wanted: string): string[] =>
  JSON.parse(instructions.find(({ name }) => name === wanted)?.rest ?? '[]') as string[]

interface Started {
  readonly child: ChildProcess
  readonly lines: readonly string[]
}

/** As a container is: its own mounts, of which only those may be written that the image says. */
function startIn(stage: Stage, args: readonly string[], env: NodeJS.ProcessEnv): Started {
  const app = join(place, 'app')
  const readOnly = `mount --bind ${app} ${app} && mount -o remount,bind,ro ${app} && cd ${app} && exec "$@"`
  const user = ['setpriv', `--reuid=${USER}`, `--regid=${USER}`, '--clear-groups', '--no-new-privs']
  const command = ['unshare', '--mount', 'sh', '-c', readOnly, 'sh', ...user, ...listOf(stage, 'ENTRYPOINT'), ...args]
  const [program = '', ...rest] = command
  const child = spawn(program, rest, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: plain({ ...environmentOf(stage), ...env }),
  })
  const lines: string[] = []
  for (const stream of [child.stdout, child.stderr]) createInterface(stream).on('line', (line) => lines.push(line))
  return { child, lines }
}

async function endOf({ child }: Started): Promise<number | string> {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  return child.exitCode ?? child.signalCode ?? 'nothing'
}

function megabytesOf(folder: string): number {
  return Number(execFileSync('du', ['--summarize', '--block-size=1M', folder]).toString().split('\t')[0])
}

const JOB: JobSpec = {
  name: 'Of an image',
  owner: 'tests',
  purpose: 'To be trained from an image.',
  model: { name: 'linear', input: [1, 28, 28], layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 10 }] },
  dataset: { source: 'digits' },
  optimizer: { type: 'sgd', lr: 0.01 },
  blockSamples: 16,
  batchBlocks: 2,
  stop: { epochs: 1, steps: 5 },
  seed: 3,
  mode: 'ring',
}

test('what the Containerfile builds runs a coordinator and a volunteer', { skip, timeout: LIMIT_MS }, async () => {
  const [first, last] = stagesIn(readFileSync(`${ROOT}deploy/Containerfile`, 'utf8'))
  assert.ok(first && last)
  chmodSync(place, 0o755)
  build(first)
  for (const folder of ['data', 'home/starling']) {
    mkdirSync(join(place, folder), { recursive: true })
    chownSync(join(place, folder), USER, USER)
  }
  const size = megabytesOf(join(place, 'app')) + megabytesOf(join(place, 'web'))
  assert.ok(size < MOST_MEGABYTES, `${size} MB beside the base image`)

  const env = { STARLING_PORT: '0', STARLING_TOKEN: TOKEN }
  const coordinator = startIn(last, [...listOf(last, 'CMD'), '--json'], env)
  try {
    const url = await listening(coordinator)
    const port = new URL(url).port
    const { instructions } = last
    const health = JSON.parse(
      /\[.*\]/.exec(instructions.find(({ name }) => name === 'HEALTHCHECK')?.rest ?? '')?.[0] ?? '[]',
    ) as string[]
    // throws unless it ends with 0
    execFileSync(health[0] ?? '', health.slice(1), { env: plain({ STARLING_PORT: port }) })
    assert.throws(() => execFileSync(health[0] ?? '', health.slice(1), { env: plain({ STARLING_PORT: '1' }) }))
    for (const page of ['/', '/dashboard', '/api']) assert.equal((await fetch(url + page)).status, 200, page)

    const api = new CoordinatorApi({ url, token: TOKEN })
    const { job } = await api.submit(JOB)
    // Its software adapter is unpacked into its home.
    const volunteer = startIn(last, ['volunteer', url, '--once'], { STARLING_DATA_DIR: '' })
    assert.equal(await endOf(volunteer), 0, volunteer.lines.join('\n'))
    assert.equal((await api.run(job.id)).phase, 'finished')
    const nothing = startIn(last, ['operator', '--url', url], {})
    assert.equal(await endOf(nothing), 2)
    assert.match(nothing.lines.join('\n'), /expected to run in a pod, or --kube-url/)

    coordinator.child.kill('SIGTERM')
    assert.equal(await endOf(coordinator), 0, coordinator.lines.join('\n'))
  } finally {
    coordinator.child.kill('SIGKILL')
    await endOf(coordinator)
  }
  // What may not be written was not.
  assert.throws(() =>
    execFileSync(
      'setpriv',
      [`--reuid=${USER}`, `--regid=${USER}`, '--clear-groups', 'touch', join(place, 'app', 'x')],
      { stdio: 'ignore' },
    ),
  )
})

async function listening(coordinator: Started): Promise<string> {
  const until = Date.now() + START_MS
  for (;;) {
    const line = coordinator.lines.find((one) => one.startsWith('{"url"'))
    if (line !== undefined) return (JSON.parse(line) as { url: string }).url
    const { exitCode } = coordinator.child
    assert.ok(exitCode === null && Date.now() < until, coordinator.lines.join('\n'))
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}
