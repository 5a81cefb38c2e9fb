// Every command and option that a document, a page or a message of ours names is there: each is looked up in the
// program itself.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { COMMANDS } from '../src/commands.ts'
import { CommandProcess } from './command-process.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const ENTRY = join(ROOT, 'bin/starling.mjs')
const run = promisify(execFile)

/** options of other programs that our texts name, and which program has them */
const OF_OTHERS: Readonly<Record<string, string>> = {
  '--block_size': 'nanoGPT',
  '--batch_size': 'nanoGPT',
  '--n_layer': 'nanoGPT',
  '--n_head': 'nanoGPT',
  '--n_embd': 'nanoGPT',
  '--max_iters': 'nanoGPT',
  '--lr_decay_iters': 'nanoGPT',
  '--dropout': 'nanoGPT',
  '--with-deps': 'playwright install',
  '--enable-source-maps': 'node',
  '--read-only': 'podman',
  '--tmpfs': 'podman',
  '--device': 'podman',
  '--file': 'docker compose',
  '--detach': 'docker compose',
  '--profile': 'docker compose',
  '--from-literal': 'kubectl',
  '--kustomize': 'kubectl',
  '--filename': 'kubectl',
  '--validate': 'kubectl',
  '--omit': 'npm ci',
}
/** options of ours that no --help shows, and where they are read */
const BESIDE_HELP: Readonly<Record<string, string>> = {
  '--verbose': 'cli/src/run-command.ts',
  '--all': 'bin/run-tests.mjs',
  '--timing': 'cli/src/start-options.ts',
}

async function help(args: readonly string[]): Promise<string> {
  const { stdout } = await run(process.execPath, [...args], { cwd: ROOT, env: { ...process.env, COLUMNS: '200' } })
  return stdout
}

const optionsIn = (text: string): string[] =>
  [...text.matchAll(/(?<![\w-])--[a-z][a-z0-9_-]*/g)].map(([option]) => option)

/** Lines of help that begin with an option, with its short form or without. */
function optionsOfHelp(text: string): Set<string> {
  return new Set([
    '--help',
    ...text.split('\n').flatMap((line) => (/^\s+-/.test(line) ? optionsIn(line.trim().split(/\s{2,}/)[0] ?? '') : [])),
  ])
}

/** Command of a user → its help and that of its subcommands. */
async function helpOfUsers(): Promise<ReadonlyMap<string, readonly string[]>> {
  const commands = new CommandProcess()
  const textOf = async (...args: string[]): Promise<string> => (await commands.run([...args, '--help'], ROOT)).stdout
  const found = new Map<string, readonly string[]>()
  for (const name of Object.keys(COMMANDS)) {
    const texts = [await textOf(name)]
    const [, subcommands = ''] = (texts[0] ?? '').split('Commands:')
    for (const [, subcommand = ''] of subcommands.matchAll(/^ {2}([a-z-]+)/gm))
      if (subcommand !== 'help') texts.push(await textOf(name, subcommand))
    found.set(name, texts)
  }
  commands.end()
  return found
}

/** Command → its options and those of its subcommands. */
async function programs(): Promise<Map<string, Set<string>>> {
  const ofUsers = await helpOfUsers()
  const names = [...(await help([ENTRY, '--help'])).matchAll(/^ {2}([a-z-]+) {2}/gm)].map(([, name = '']) => name)
  assert.ok(names.includes('volunteer') && names.includes('train'))
  const textsOf = async (name: string) => ofUsers.get(name) ?? [await help([ENTRY, name, '--help'])]
  const optionsOf = async (name: string) => new Set((await textsOf(name)).flatMap((text) => [...optionsOfHelp(text)]))
  const found = await Promise.all(
    names.filter((name) => name !== 'test').map(async (name) => [name, await optionsOf(name)] as const),
  )
  return new Map([...found, ['test', new Set(['--all'])]])
}

function filesUnder(folder: string, wanted: RegExp): string[] {
  return readdirSync(join(ROOT, folder)).flatMap((name) => {
    const path = join(folder, name)
    if (name === 'node_modules' || name.startsWith('.') || name === 'dist') return []
    if (statSync(join(ROOT, path)).isDirectory()) return filesUnder(path, wanted)
    return wanted.test(name) ? [path] : []
  })
}

interface Said {
  readonly where: string
  readonly text: string
}

/** A line of a document, with the lines that it goes on in (a backslash at its end). */
function linesOf(path: string): Said[] {
  const text = readFileSync(join(ROOT, path), 'utf8').replaceAll('\\\n', ' ')
  return text.split('\n').map((line) => ({ where: path, text: line }))
}

/** Texts of a program: its literals that hold more than one word, and what is between tags. Comments are for us. */
function literalsOf(path: string): Said[] {
  const code = readFileSync(join(ROOT, path), 'utf8').replaceAll(/^\s*(\/\/|\*|\/\*).*$/gm, '')
  const quoted = [...code.matchAll(/'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g)].map(
    ([, single = '', double = '', template = '']) => single || double || template,
  )
  const tagged = /\.(tsx|html)$/.test(path)
    ? [...code.matchAll(/(?<=[>}])[^<>{}]+(?=[<{])/g)].map(([text]) => text)
    : []
  // a text that begins with our name is no command line
  return [...quoted, ...tagged]
    .filter((text) => /\s/.test(text.trim()))
    .map((text) => ({ where: path, text: `"${text.replaceAll('\\`', '`')}` }))
}

const DOCUMENTS = ['README.md', ...filesUnder('docs', /\.md$/), ...filesUnder('examples', /\.md$/)]
const SOURCES = ['protocol', 'model', 'volunteer', 'coordinator', 'client-node', 'cli', 'e2e', 'bench'].flatMap(
  (name) => filesUnder(`${name}/src`, /\.(ts|mjs)$/),
)
const PAGES = [
  ...filesUnder('client-web/src', /\.tsx?$/),
  'client-web/index.html',
  'client-web/dashboard.html',
  'client-web/build.ts',
]
const COMMAND_LINES = filesUnder('bin', /\.mjs$/)

const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: Record<string, string> }

/** `npm run NAME` or `starling NAME`, and what follows it in its text. */
const NAMED = new RegExp(
  '(?:\\bnpm run (?:-\\w+ )*|\\bnpm (?=start|test)|(?:`|^|\\s)(?:node bin/)?starling(?:\\.mjs)? )' +
    '([a-z][a-z:-]*)(?=[\\s`\'",.;:)]|$)([^`\'"|;#\\n]*)',
  'g',
)

test(
  'every command and option that is named in documents, pages and messages exists',
  { timeout: 240_000 },
  async () => {
    const optionsOf = await programs()
    const allOptions = optionsThatExist(optionsOf)
    const texts = [...DOCUMENTS.flatMap(linesOf), ...[...SOURCES, ...PAGES, ...COMMAND_LINES].flatMap(literalsOf)]
    const commands = texts.flatMap((text) => commandsIn(text, optionsOf))
    const options = texts.flatMap(({ where, text }) =>
      optionsIn(text).map((option) => ({
        named: `${where}: ${option}`,
        exists: allOptions.has(option) || option in OF_OTHERS,
      })),
    )
    const wrong = [...commands, ...options].filter(({ exists }) => !exists).map(({ named }) => named)
    assert.deepEqual([...new Set(wrong)], [])
    assert.ok(
      commands.length > 40 && options.length > 60,
      `${commands.length} commands and ${options.length} options were looked up`,
    )
  },
)

type OptionsOfCommands = Awaited<ReturnType<typeof programs>>

function optionsThatExist(optionsOf: OptionsOfCommands): Set<string> {
  const all = new Set([...optionsOf.values()].flatMap((options) => [...options]))
  for (const [option, file] of Object.entries(BESIDE_HELP)) {
    assert.ok(readFileSync(join(ROOT, file), 'utf8').includes(option), `${file} reads ${option}`)
    all.add(option)
  }
  return all
}

/** What one text names: the command, and each option behind it that the command must have. */
function commandsIn({ where, text }: { where: string; text: string }, optionsOf: OptionsOfCommands) {
  return [...text.matchAll(NAMED)].flatMap(([named, name = '', rest = '']) => {
    const options = optionsOf.get(name)
    const exists = /\bnpm /.test(named) ? name in scripts : options !== undefined
    const command = { named: `${where}: ${named.trim()}`, exists }
    const missing = options === undefined ? [] : optionsIn(rest).filter((option) => !options.has(option))
    return [command, ...missing.map((option) => ({ named: `${where}: ${name} ${option}`, exists: false }))]
  })
}
