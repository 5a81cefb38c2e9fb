// `starling NAME` in a process: of its own, as a user's shell runs it, or in one that serves many calls.
import { type ChildProcess, execFile, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const WORKER = fileURLToPath(new URL('command-worker.ts', import.meta.url))

export interface Asked {
  readonly args: readonly string[]
  readonly cwd: string
}

export interface Ended {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}

interface RunOptions {
  readonly cwd?: string
  readonly env?: NodeJS.ProcessEnv
  /** ms */
  readonly timeout?: number
}

export function runStarling(args: readonly string[], options: RunOptions = {}): Promise<Ended> {
  return new Promise((resolve) => {
    execFile(process.execPath, [STARLING, ...args], options, (error, stdout, stderr) =>
      resolve({ status: error === null ? 0 : Number(error.code ?? -1), stdout, stderr }),
    )
  })
}

/** For commands that leave nothing open. Not two at a time. */
export class CommandProcess {
  #process: ChildProcess | undefined

  async run(args: readonly string[], cwd: string): Promise<Ended> {
    this.#process ??= fork(TYPESCRIPT, [WORKER], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
    const heard = new AbortController()
    const answered = once(this.#process, 'message')
    const ended = once(this.#process, 'exit', heard).then(([code]) => {
      throw new Error(`the process of ${args.join(' ')} ended with ${code}`)
    })
    this.#process.send({ args, cwd } satisfies Asked)
    try {
      const [answer] = (await Promise.race([answered, ended])) as [Ended]
      return answer
    } finally {
      heard.abort()
    }
  }

  end(): void {
    this.#process?.removeAllListeners('exit')
    this.#process?.kill()
  }
}
