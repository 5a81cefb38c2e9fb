// A copy of this working tree in a temporary folder, in which lines are broken and tests run: the tree itself never
// changes.
import { execFileSync, spawn } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { adapterEnvironment, testAdapter } from '@starling-grid/client-node/test-adapter'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
/** Packages of this repository: the copy has its own. */
const OWN_SCOPE = '@starling-grid'
/** How Node's reporter begins the line of a test that failed. */
const FAILED = /^\s*✖ /
/**
 * ms: far above the slowest files named by mutants; a mutant may make a test wait for ever, and that is noticed, too
 */
const LIMIT_MS = 6 * 60_000

export type Verdict = 'passed' | 'failed' | 'hung'

export class Tree {
  readonly #folder = mkdtempSync(join(tmpdir(), 'starling-mutants-'))
  readonly #root = join(this.#folder, 'tree')
  readonly #env: NodeJS.ProcessEnv
  readonly #tests: readonly string[]
  #end: () => void = () => undefined

  static async open(): Promise<Tree> {
    const { env } = await adapterEnvironment(await testAdapter()) // once, and not for every mutant
    return new Tree({ ...process.env, ...env })
  }

  private constructor(env: NodeJS.ProcessEnv) {
    this.#env = { ...env, TMPDIR: join(this.#folder, 'tmp'), NODE_OPTIONS: `--import=${import.meta.resolve('tsx')}` }
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

  /** Runs test files; ends at the first test that fails. `said`: the last lines. */
  async test(parts: readonly string[]): Promise<{ readonly verdict: Verdict; readonly said: readonly string[] }> {
    const files = this.#tests.filter((file) => parts.some((part) => file.includes(part)))
    if (files.length === 0) throw new Error(`expected test files with ${parts.join(' or ')} in their path, found none`)
    const child = spawn(process.execPath, ['--test', '--test-reporter=spec', ...files], {
      cwd: this.#root,
      env: this.#env,
      detached: true,
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    const said: string[] = []
    let verdict: Verdict | undefined
    const end = (why: Verdict): void => {
      verdict ??= why
      if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGKILL')
    }
    this.#end = () => end('hung')
    const timer = setTimeout(this.#end, LIMIT_MS)
    createInterface({ input: child.stdout }).on('line', (line) => {
      said.push(line)
      if (FAILED.test(line)) end('failed')
    })
    const code = await new Promise<number | null>((resolve) => child.once('exit', resolve))
    clearTimeout(timer)
    return { verdict: verdict ?? (code === 0 ? 'passed' : 'failed'), said: said.slice(-20) }
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
