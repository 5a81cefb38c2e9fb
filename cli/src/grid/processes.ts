// Child processes of a grid: started from the same entry as users start them, waited for, never left behind.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { GridError } from '@starling-grid/protocol'

const TYPESCRIPT = fileURLToPath(new URL('../../../bin/typescript.mjs', import.meta.url))
const ENTRY = fileURLToPath(new URL('../../../bin/starling.mjs', import.meta.url))
/** lines of a child's error output that are kept for a message */
const KEPT_LINES = 40

export interface Child {
  readonly process: ChildProcess
  readonly name: string
  /** the last lines that it printed */
  readonly lines: readonly string[]
  /** resolves with its exit code, or its signal's name */
  readonly ended: Promise<number | string>
  alive(): boolean
  kill(signal?: NodeJS.Signals): void
}

const running = new Set<Child>()
process.on('exit', () => {
  for (const child of running) child.process.kill('SIGKILL')
})

export interface ChildOptions {
  readonly name: string
  readonly args: readonly string[]
  readonly env?: NodeJS.ProcessEnv
  /** another file than the command line, for volunteers with faults built in */
  readonly entry?: string
  readonly onLine?: (line: string, stream: 'stdout' | 'stderr') => void
}

export function startChild({ name, args, env = {}, entry = ENTRY, onLine }: ChildOptions): Child {
  const node = entry.endsWith('.ts') ? [TYPESCRIPT, entry] : [entry]
  // The channel says nothing; its end tells the child that we are gone (bin/command-line.mjs).
  // Its own process group: Ctrl-C on the terminal reaches us, and we decide in what order the others stop
  const child = spawn(process.execPath, [...node, ...args], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: { ...process.env, FORCE_COLOR: undefined, NO_COLOR: '1', ...env },
    detached: true,
  })
  child.channel?.unref()
  const lines: string[] = []
  const keep = (stream: 'stdout' | 'stderr') => (line: string) => {
    lines.push(line)
    if (lines.length > KEPT_LINES) lines.shift()
    onLine?.(line, stream)
  }
  for (const stream of ['stdout', 'stderr'] as const)
    if (child[stream] !== null) createInterface(child[stream]).on('line', keep(stream))
  const ended = once(child, 'exit').then(
    ([code, signal]) => (running.delete(handle), code ?? String(signal)) as number | string,
  )
  const handle: Child = {
    process: child,
    name,
    lines,
    ended,
    alive: () => child.exitCode === null && child.signalCode === null,
    kill: (signal = 'SIGKILL') => void child.kill(signal),
  }
  running.add(handle)
  return handle
}

/** SIGTERM, then SIGKILL when it does not end in time. */
export async function stopChild(child: Child, graceMs = 5000): Promise<void> {
  if (!child.alive()) return
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), graceMs)
  await child.ended
  clearTimeout(timer)
}

/** What a child that ended too early had to say. */
export function earlyEnd(child: Child, ended: number | string): GridError {
  return new GridError(
    'unsupported',
    `${child.name} ended (${ended}): ${
      child.lines
        .filter((line) => line.trim() !== '')
        .slice(-3)
        .join(' | ') || 'it said nothing'
    }`,
  )
}
