// A copy of this working tree in a temporary folder, in which lines are broken and tests run: the tree itself never
// changes.
import { execFile, execFileSync, spawn } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { adapterEnvironment, testAdapter } from '@starling-grid/client-node/test-adapter'
import type { Found, Hunt } from '../world/hunt.ts'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
/** Packages of this repository: the copy has its own. */
const OWN_SCOPE = '@starling-grid'
/** How TAP begins the line of a test that failed, and ends what it says about it. */
const FAILED = /^\s*not ok \d+ - (.*)$/
const SAID_ALL = /^\s*\.\.\.$/
/** Lines about one failure that are kept: name, place, error, code; not the whole difference of two large values. */
const MOST_LINES = 30
/** ms, beside a multiple of what the file took on the tree as it is: a mutant may make a test wait for ever. */
const LEAST_LIMIT_MS = 60_000
const LIMIT_TIMES = 4
/** ms for a file that was not run yet */
const FIRST_LIMIT_MS = 10 * 60_000

/** `unfit`: the mutant calls what is not there, so that any test notices it; it proves nothing. */
export type TestVerdict = 'passed' | 'failed' | 'hung' | 'unfit'

export interface TestOutcome {
  readonly verdict: TestVerdict
  /** the test file that did not pass */
  readonly file?: string
  /** the first test that failed, and what it said; of a run that hung, its last lines */
  readonly test?: string
  readonly said: readonly string[]
}

/** bin/compile.mjs of the copy */
interface Compiler {
  compiledOneByOne(): Promise<NodeJS.ProcessEnv>
}

export class Tree {
  readonly #folder = mkdtempSync(join(tmpdir(), 'starling-mutants-'))
  readonly #root = join(this.#folder, 'tree')
  readonly #env: NodeJS.ProcessEnv
  readonly #tests: readonly string[]
  /** ms for each file that passed once */
  readonly #limits = new Map<string, number>()
  #end: () => void = () => undefined

  /** For what needs no graphics adapter. */
  static plain(): Tree {
    return new Tree(process.env)
  }

  static async open(): Promise<Tree> {
    const { env } = await adapterEnvironment(await testAdapter()) // once, and not for every mutant
    return new Tree({ ...process.env, ...env })
  }

  private constructor(env: NodeJS.ProcessEnv) {
    const { NODE_TEST_CONTEXT: _, ...others } = env // of a test that runs tests: with it they print no TAP
    this.#env = { ...others, TMPDIR: join(this.#folder, 'tmp') }
    const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '-z'], { cwd: ROOT })
      .toString()
      .split('\0')
      .filter((name) => name !== '')
    this.#tests = files.filter((name) => name.endsWith('.test.ts'))
    for (const file of files) {
      mkdirSync(dirname(join(this.#root, file)), { recursive: true })
      cpSync(join(ROOT, file), join(this.#root, file))
    }
    this.#linkPackages()
    symlinkSync(join(ROOT, '..', 'shared'), join(this.#folder, 'shared')) // reference data, where there are some
    mkdirSync(join(this.#folder, 'tmp'))
  }

  read(file: string): string {
    return readFileSync(join(this.#root, file), 'utf8')
  }

  write(file: string, text: string): void {
    writeFileSync(join(this.#root, file), text)
  }

  /** Test files with one of these parts in their path, in the order of the parts. @throws Error when there are none */
  testsOf(parts: readonly string[]): ReadonlySet<string> {
    const files = new Set(parts.flatMap((part) => this.#tests.filter((file) => file.includes(part))))
    if (files.size === 0) throw new Error(`expected test files with ${parts.join(' or ')} in their path, found none`)
    return files
  }

  /** Runs the file once without a mutant: a test that fails by itself would notice every mutant. @throws Error */
  async requirePassing(file: string): Promise<void> {
    if (this.#limits.has(file)) return
    const began = performance.now()
    const { verdict, test = '', said } = await this.run(file)
    if (verdict !== 'passed')
      throw new Error(
        `expected ${file} to pass on the tree as it is, it ${verdict}: ${test}; mend it first:\n${said.join('\n')}`,
      )
    this.#limits.set(file, LEAST_LIMIT_MS + LIMIT_TIMES * (performance.now() - began))
  }

  /**
   * The first of these seeds whose grid breaks an invariant; null: none does. @throws Error when the process dies
   * without a word, or takes longer than `limitMs`
   */
  async hunt(hunt: Hunt, limitMs: number): Promise<Found | null> {
    const argv = ['bin/typescript.mjs', 'e2e/src/world/hunt.ts', JSON.stringify(hunt)]
    const options = { cwd: this.#root, env: await this.#compiled(), timeout: limitMs, killSignal: 'SIGKILL' } as const
    const { stdout } = await promisify(execFile)(process.execPath, argv, options)
    return JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '') as Found | null
  }

  /** Runs one test file; ends at the first test that fails. */
  async run(file: string): Promise<TestOutcome> {
    const child = spawn(process.execPath, ['--test-reporter=tap', 'bin/typescript.mjs', file], {
      cwd: this.#root,
      env: await this.#compiled(),
      detached: true,
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
    let isHung = false
    const kill = (): void => {
      try {
        if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGKILL')
      } catch (error) {
        if (!(error instanceof Error) || !('code' in error) || error.code !== 'ESRCH') throw error // it ended meanwhile
      }
    }
    this.#end = () => {
      isHung = true
      kill()
    }
    const timer = setTimeout(this.#end, this.#limits.get(file) ?? FIRST_LIMIT_MS)
    const failure = new FirstFailure(kill)
    createInterface({ input: child.stdout }).on('line', (line) => failure.read(line))
    const code = await ended
    clearTimeout(timer)
    if (isHung) return { verdict: 'hung', file, ...failure.outcome() }
    if (code !== 0) return { verdict: failure.isOfMutant ? 'unfit' : 'failed', file, ...failure.outcome() }
    return { verdict: 'passed', said: [] }
  }

  /** Here, where the compiler is warm. What a process needs in its environment to find it. */
  async #compiled(): Promise<NodeJS.ProcessEnv> {
    const compiler = (await import(pathToFileURL(join(this.#root, 'bin/compile.mjs')).href)) as Compiler
    // A mutant that is no TypeScript: the process looks itself, and fails.
    return { ...this.#env, ...(await compiler.compiledOneByOne().catch(() => ({}))) }
  }

  /** Also in the middle of a test. */
  remove(): void {
    this.#end()
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 3 })
  }

  /** What is installed is linked; packages of this repository lead into the copy. */
  #linkPackages(): void {
    const [from, to] = [join(ROOT, 'node_modules'), join(this.#root, 'node_modules')]
    mkdirSync(join(to, OWN_SCOPE), { recursive: true })
    for (const name of readdirSync(from))
      if (name !== OWN_SCOPE && name !== '.package-lock.json') symlinkSync(join(from, name), join(to, name))
    for (const name of readdirSync(join(from, OWN_SCOPE)))
      symlinkSync(join('..', '..', name), join(to, OWN_SCOPE, name))
  }
}

/** Reads TAP up to the end of the first failure. */
class FirstFailure {
  readonly #onRead: () => void
  #test: string | undefined
  #said: string[] = []
  #isRead = false

  constructor(onRead: () => void) {
    this.#onRead = onRead
  }

  read(line: string): void {
    if (this.#isRead) return
    if (this.#test === undefined) this.#begin(line)
    else if (this.#said.length < MOST_LINES) this.#said.push(line.trim())
    if (this.#test === undefined || !SAID_ALL.test(line)) return
    this.#isRead = true
    this.#onRead()
  }

  get isOfMutant(): boolean {
    return this.#said.includes("name: 'ReferenceError'")
  }

  outcome(): Pick<TestOutcome, 'test' | 'said'> {
    return { ...(this.#test === undefined ? {} : { test: this.#test }), said: this.#said }
  }

  #begin(line: string): void {
    this.#test = FAILED.exec(line)?.[1]
    this.#said = this.#test === undefined ? [...this.#said.slice(-MOST_LINES), line] : []
  }
}
