// The coordinator as its own process, as users start it.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { createInterface } from 'node:readline'
import { after } from 'node:test'
import { fileURLToPath } from 'node:url'

const WITH_PARENT = `data:text/javascript,process.on('disconnect', () => process.exit(1))`
const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const CLI = fileURLToPath(new URL('../../cli/src/main.ts', import.meta.url))
/** without a build of the pages */
const START = [CLI, 'start', '--web-root', tmpdir()]

export interface CoordinatorProcess {
  readonly child: ChildProcess
  /** what it printed on stdout and stderr so far */
  readonly stdout: string[]
  readonly stderr: string[]
  /** exit code, or the name of the signal that ended it */
  readonly ended: Promise<number | string>
  /** first JSON line on stdout. @throws Error when the process ended before */
  listening(): Promise<{ readonly url: string; readonly port: number; readonly tokenFile: string }>
}

/** `program`: another file of this folder that starts one, in place of the command. */
export function spawnCoordinator(args: readonly string[], program?: string): CoordinatorProcess {
  const command = program === undefined ? START : [program]
  // The channel says nothing; its end, when this test's process is ended, ends the coordinator.
  const child = spawn(process.execPath, ['--import', WITH_PARENT, TYPESCRIPT, ...command, ...args], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  })
  child.channel?.unref()
  const [stdout, stderr]: [string[], string[]] = [[], []]
  if (child.stdout === null || child.stderr === null) throw new Error('internal: no pipes')
  createInterface(child.stderr).on('line', (line) => stderr.push(line))
  const out = createInterface(child.stdout).on('line', (line) => stdout.push(line))
  const ended = once(child, 'close').then(([code, signal]) => (code ?? signal) as number | string)
  after(() => child.kill('SIGKILL'))
  return {
    child,
    stdout,
    stderr,
    ended,
    async listening() {
      const early = ended.then((code) =>
        Promise.reject(new Error(`the coordinator ended (${code}): ${stderr.join('\n')}`)),
      )
      early.catch(() => undefined)
      while (stdout.length === 0) await Promise.race([once(out, 'line'), early])
      return JSON.parse(stdout[0] ?? '') as { url: string; port: number; tokenFile: string }
    },
  }
}
