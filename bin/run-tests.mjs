// Runs the tests of every package: unit tests and simulations two files at a time, then whole grids of processes (e2e/), those
// that leave a core idle two at a time and the others alone; reported as one run by Node's own reporter. Run through `starling test`.
import { readdirSync, existsSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { Readable } from 'node:stream'
import { run } from 'node:test'
import { spec } from 'node:test/reporters'
import { fileURLToPath } from 'node:url'

const FILES_AT_ONCE = 2
/** Simulated grids, in the process of the test. */
const SIMULATED = ['simulation', 'ring-death-matrix']
/** Grids that keep one core busy at most: the rest is waiting, for silence, for links, for each other. Their promises hold on a machine of any speed. */
const WAITING = [
  'collectives', 'trains-with-encoded-gradients', 'falls-back-and-returns', 'a-member-dies-anywhere-in-a-step', 'mends-a-partition', 'a-member-without-links-is-a-guest', 'trains-in-local-rounds', 'names-who-sends-wrong-sums',
  'refuses-hostile-frames', 'relays-a-pair-that-cannot-link', 'coordinator-restarts', 'a-volunteer-leaves-between-steps', 'a-sleeper-comes-back',
]
/** A file that hangs is ended and fails; the slowest takes 2 minutes on 2 cores. */
const FILE_LIMIT_MS = 10 * 60_000
const ROOT = dirname(dirname(fileURLToPath(import.meta.url)))

const wanted = process.argv.slice(2)
const files = readdirSync(ROOT)
  .flatMap((folder) => testsIn(join(ROOT, folder, 'test')))
  .filter((file) => wanted.length === 0 || wanted.some((text) => relative(ROOT, file).includes(text)))
const isGrid = (file) => relative(ROOT, file).startsWith('e2e') && !SIMULATED.includes(nameOf(file))
const waits = (file) => isGrid(file) && WAITING.includes(nameOf(file))

if (files.length === 0) {
  console.error(`No test file's path contains ${wanted.join(' or ')}.`)
  process.exit(2)
}

const { prepareProcess } = await import('../client-node/src/runtime/prepare-process.ts')
// Chosen once, here; the test files inherit it.
console.error(`Adapter: ${await prepareProcess(await testWish())}`)
// Node passes its own options on to the processes of test files, not hooks that were registered afterwards.
process.env.NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ''} --import=${import.meta.resolve('tsx')}`

Readable.from(asOneRun([
  { files: files.filter((file) => !isGrid(file)), concurrency: FILES_AT_ONCE, timeout: FILE_LIMIT_MS },
  { files: files.filter(waits).sort((a, b) => WAITING.indexOf(nameOf(a)) - WAITING.indexOf(nameOf(b))), concurrency: FILES_AT_ONCE, timeout: FILE_LIMIT_MS },
  { files: files.filter((file) => isGrid(file) && !waits(file)), concurrency: 1, timeout: FILE_LIMIT_MS },
])).compose(new spec()).pipe(process.stdout)

/**
 * A GPU when there is one. Of the two software drivers the bundled SwiftShader: lavapipe computes faster, but takes seconds to
 * compile a kernel, and tests compile hundreds. Golden vectors are run on both (client-node/test/golden-adapters.test.ts).
 */
async function testWish() {
  const { adapterEnvironment } = await import('../client-node/src/runtime/adapter-environment.ts')
  const swiftShader = { adapter: 'SwiftShader' }
  const found = await adapterEnvironment()
  if (!found.description.includes('llvmpipe') || (await adapterEnvironment(swiftShader)).description.startsWith('none')) return {}
  return swiftShader
}

/** The events of several runs, with one closing summary whose counts are added up. */
async function* asOneRun(runs) {
  const totals = new Map()
  let closing
  for (const options of runs.filter(({ files }) => files.length > 0))
    for await (const event of run(options)) {
      if (event.type === 'test:fail') process.exitCode = 1
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
  const line = type === 'test:diagnostic' && data.nesting === 0 && /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) ([\d.]+)$/.exec(data.message)
  return line ? { of: line[1], number: Number(line[2]) } : undefined
}

function nameOf(file) {
  return basename(file, '.test.ts')
}

function testsIn(folder) {
  return existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith('.test.ts')).map((name) => join(folder, name)) : []
}
