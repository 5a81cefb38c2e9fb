// Runs the tests of every package: unit tests and simulations two files at a time, then whole grids of processes
// (e2e/), those that leave a core idle two at a time and the others alone; reported as one run by Node's own reporter.
// Run through `starling test`. Without a text: every promise once (test-choice.mjs names what is left out, with the
// reason); with `--all` also what is left out, after it.
import { readdirSync, existsSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { Readable } from 'node:stream'
import { run } from 'node:test'
import { spec } from 'node:test/reporters'
import { fileURLToPath } from 'node:url'
import { LATER } from './test-choice.mjs'

const FILES_AT_ONCE = 2
/** Simulated grids, in the process of the test. */
const SIMULATED = ['simulation', 'simulation-misses-each-rule', 'ring-death-matrix']
/**
 * Grids that keep one core busy at most: the rest is waiting, for silence, for links, for each other. Their promises
 * hold on a machine of any speed.
 */
const WAITING = [
  'collectives',
  'trains-with-encoded-gradients',
  'falls-back-and-returns',
  'a-member-dies-anywhere-in-a-step',
  'mends-a-partition',
  'a-member-without-links-is-a-guest',
  'trains-in-local-rounds',
  'names-who-sends-wrong-sums',
  'refuses-hostile-frames',
  'relays-a-pair-that-cannot-link',
  'coordinator-restarts',
  'a-volunteer-leaves-between-steps',
  'a-sleeper-comes-back',
]
/** A file that hangs is ended and fails; the slowest takes 2 minutes on 2 cores. */
const FILE_LIMIT_MS = 10 * 60_000
/** Named at the end of a whole run, so that it is seen what makes it long. */
const SLOWEST = 12
const ROOT = dirname(dirname(fileURLToPath(import.meta.url)))

const [all, wanted] = [process.argv.includes('--all'), process.argv.slice(2).filter((text) => text !== '--all')]
const present = readdirSync(ROOT).flatMap((folder) => testsIn(join(ROOT, folder, 'test')))
const isLater = (file) => Object.hasOwn(LATER, nameOf(file))
const files = present.filter((file) =>
  wanted.length === 0 ? all || !isLater(file) : wanted.some((text) => relative(ROOT, file).includes(text)),
)
const isGrid = (file) => relative(ROOT, file).startsWith('e2e') && !SIMULATED.includes(nameOf(file))
const waits = (file) => isGrid(file) && WAITING.includes(nameOf(file))

if (files.length === 0) {
  console.error(`No test file's path contains ${wanted.join(' or ')}.`)
  process.exit(2)
}

const [{ prepareProcess }, { testAdapter }] = await Promise.all([
  import('../client-node/src/runtime/prepare-process.ts'),
  import('../client-node/src/runtime/test-adapter.ts'),
])
// Chosen once, here; the test files inherit it.
console.error(`Adapter: ${await prepareProcess(await testAdapter())}`)
// Node passes its own options on to the processes of test files, not hooks that were registered afterwards.
process.env.NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ''} --import=${import.meta.resolve('tsx')}`

const now = files.filter((file) => wanted.length > 0 || !isLater(file))
const later = files.filter((file) => !now.includes(file))
Readable.from(asOneRun([...groupsOf(now), ...groupsOf(later)]))
  .compose(new spec())
  .pipe(process.stdout)
const secondsIn = new Map()
if (wanted.length === 0) process.once('exit', () => console.log(`\nSlowest files: ${slowest()}`))
if (wanted.length === 0 && !all) {
  const left = present.length - files.length
  process.once('exit', () =>
    console.log(
      `\n${left} files that take long were left out; their promises were kept by others. Everything: npm run test:all`,
    ),
  )
}

/** Unit tests and simulations, then grids of processes. */
function groupsOf(chosen) {
  const waiting = chosen.filter(waits).sort((a, b) => WAITING.indexOf(nameOf(a)) - WAITING.indexOf(nameOf(b)))
  return [
    { files: chosen.filter((file) => !isGrid(file)), concurrency: FILES_AT_ONCE, timeout: FILE_LIMIT_MS },
    { files: waiting, concurrency: FILES_AT_ONCE, timeout: FILE_LIMIT_MS },
    { files: chosen.filter((file) => isGrid(file) && !waits(file)), concurrency: 1, timeout: FILE_LIMIT_MS },
  ]
}

/** The events of several runs, with one closing summary whose counts are added up. */
async function* asOneRun(runs) {
  const totals = new Map()
  let closing
  for (const options of runs.filter(({ files }) => files.length > 0))
    for await (const event of run(options)) {
      if (event.type === 'test:fail') process.exitCode = 1
      countTime(event)
      const count = countIn(event)
      // Since Node 22 this event, without a file, makes the reporter list the failures.
      if (event.type === 'test:summary' && event.data.file === undefined) closing = event
      else if (count === undefined) yield event
      else totals.set(count.of, { event, sum: count.number + (totals.get(count.of)?.sum ?? 0) })
    }
  for (const [of, { event, sum }] of totals) yield { ...event, data: { ...event.data, message: `${of} ${sum}` } }
  if (closing) yield closing
}

/** Node closes a run with lines such as "pass 12". */
function countIn({ type, data }) {
  const line =
    type === 'test:diagnostic' &&
    data.nesting === 0 &&
    /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) ([\d.]+)$/.exec(data.message)
  return line ? { of: line[1], number: Number(line[2]) } : undefined
}

/** Tests of one file run one after the other: their durations add up to its own. */
function countTime({ type, data }) {
  if ((type !== 'test:pass' && type !== 'test:fail') || data.nesting > 0 || data.file === undefined) return
  const file = relative(ROOT, data.file)
  secondsIn.set(file, (secondsIn.get(file) ?? 0) + data.details.duration_ms / 1000)
}

function slowest() {
  const files = [...secondsIn].sort(([, one], [, other]) => other - one).slice(0, SLOWEST)
  return files.map(([file, seconds]) => `${file} ${seconds.toFixed(0)} s`).join(', ')
}

function nameOf(file) {
  return basename(file, '.test.ts')
}

function testsIn(folder) {
  return existsSync(folder)
    ? readdirSync(folder)
        .filter((name) => name.endsWith('.test.ts'))
        .map((name) => join(folder, name))
    : []
}
