// Runs the tests of every package, each file in a process of its own, the longest first. Short files that touch nothing
// of their process share some: to start one and to load what is tested costs more than they do. Node's own reporter
// shows them as one run. Run through `starling test`. Without a text: every promise once (test-choice.mjs names what is
// left out, with the reason); with `--all` also what is left out.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { Readable } from 'node:stream'
import { run } from 'node:test'
import { spec } from 'node:test/reporters'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { compiled, compiledForAll, sourceOf } from './compile.mjs'
import { askOldChildren } from './hung-tests.mjs'
import { LATER, LONGEST_FIRST } from './test-choice.mjs'

/**
 * More than there are cores: grids wait most of their time, for silence, for links, for each other. Their promises hold
 * on a machine of any speed. The longest files have many processes of their own.
 */
const MORE_THAN_CORES = { some: 4, all: 2 }
/** A file that hangs is ended and fails; the slowest takes 2 minutes on 2 cores, and ten times as much when busy. */
const FILE_LIMIT_MS = 20 * 60_000
/** Before it is ended it is asked where it stands. */
const HANGING_MS = FILE_LIMIT_MS - 2 * 60_000
/**
 * Packages whose tests share processes, those of a line with each other. Coordinators start one after the other in
 * theirs, and what they are made of is loaded once: half of what they cost alone.
 */
const TOGETHER = [
  /^(?:protocol|model|shaders|volunteer)\/test\/|^coordinator\/test\/run-/,
  /^coordinator\/test\/(?!run-)/,
]
/** Hooks of a file would be those of all that share its process, and so would what it changes there. */
const OWN_PROCESS = /^(?:before|after)(?:Each)?\(|\bprocess\.|\bglobalThis\b|\bmock\b|\bturnedClock\b/m
const FILES_TOGETHER = 12
/** Named at the end of a whole run, so that it is seen what makes it long. */
const SLOWEST = 12
const ROOT = dirname(dirname(fileURLToPath(import.meta.url)))

const [all, wanted] = [process.argv.includes('--all'), process.argv.slice(2).filter((text) => text !== '--all')]
const present = readdirSync(ROOT).flatMap((folder) => testsIn(join(ROOT, folder, 'test')))
const filesAtOnce = availableParallelism() + (all ? MORE_THAN_CORES.all : MORE_THAN_CORES.some)
const isLater = (file) => Object.hasOwn(LATER, nameOf(file))
const files = present.filter((file) =>
  wanted.length === 0 ? all || !isLater(file) : wanted.some((text) => relative(ROOT, file).includes(text)),
)

if (files.length === 0) {
  console.error(`No test file's path contains ${wanted.join(' or ')}.`)
  process.exit(2)
}

const load = async (path) => import(await compiled(new URL(path, import.meta.url)))
const [{ prepareProcess }, { testAdapter }] = await Promise.all([
  load('../client-node/src/runtime/prepare-process.ts'),
  load('../client-node/src/runtime/test-adapter.ts'),
])
await compiledForAll()
// Chosen once, here; the test files inherit it.
console.error(`Adapter: ${await prepareProcess(await testAdapter())}`)
// A part of the tries with random values; all of them with --all, and where a file is named.
if (wanted.length === 0 && !all) process.env.STARLING_FUZZ ??= '0.25'
// Errors name lines of the sources.
process.env.NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ''} --enable-source-maps`
askOldChildren(HANGING_MS, (where) => process.once('exit', () => console.log(`\n${where}`)))

Readable.from(asOneRun(files.toSorted((one, other) => placeOf(one) - placeOf(other))))
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

function isLong(file) {
  return placeOf(file) < LONGEST_FIRST.length
}

/** What takes long begins first: a long file that begins last would run alone on all cores. */
function placeOf(file) {
  const place = LONGEST_FIRST.indexOf(nameOf(file))
  return place < 0 ? LONGEST_FIRST.length : place
}

async function* asOneRun(sources) {
  const compiledFiles = await Promise.all(
    sources.map(async (file) => fileURLToPath(await compiled(pathToFileURL(file)))),
  )
  const processes = wanted.length === 0 ? sharing(sources, compiledFiles) : compiledFiles
  for await (const event of run({ files: processes, concurrency: filesAtOnce, timeout: FILE_LIMIT_MS })) {
    if (event.data.file !== undefined) event.data.file = sourceOf(event.data.file)
    if (event.type === 'test:fail') process.exitCode = 1
    countTime(event)
    yield event
  }
}

/** What each process runs, in order. A failure of a process as a whole names the file that lists what it shares. */
function sharing(sources, compiledFiles) {
  const roomOf = (file) =>
    isLong(file) || OWN_PROCESS.test(readFileSync(file, 'utf8'))
      ? -1
      : TOGETHER.findIndex((room) => room.test(relative(ROOT, file)))
  const rooms = sources.map(roomOf)
  const groups = TOGETHER.flatMap((_, room) => inGroups(compiledFiles.filter((_file, i) => rooms[i] === room)))
  const alone = (long) => compiledFiles.filter((_, i) => rooms[i] === -1 && isLong(sources[i]) === long)
  return [...alone(true), ...groups.map(together), ...alone(false)]
}

function inGroups(files) {
  const count = Math.ceil(files.length / FILES_TOGETHER)
  return Array.from({ length: count }, (_, group) => files.filter((_file, i) => i % count === group))
}

/** One file that imports the others, beside what is compiled. */
function together(files, at) {
  const folder = join(ROOT, '.cache', 'together')
  mkdirSync(folder, { recursive: true })
  const file = join(folder, `${at + 1}.test.mjs`)
  writeFileSync(file, files.map((one) => `import ${JSON.stringify(pathToFileURL(one).href)}\n`).join(''))
  return file
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
