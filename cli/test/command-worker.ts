// Runs commands of a user one after the other in one process, and answers with what each printed: a process for each
// would cost a second of a core each.
import { COMMANDS } from '../src/commands.ts'
import { runCommand } from '../src/run-command.ts'
import type { Asked, Ended } from './command-process.ts'

type Output = 'stdout' | 'stderr'

process.on('message', ({ args, cwd }: Asked) => {
  void answer(args, cwd)
})

async function answer(args: readonly string[], cwd: string): Promise<void> {
  process.chdir(cwd)
  const [stdout, stderr] = [capture('stdout'), capture('stderr')]
  const status = await runCommand(COMMANDS, args)
  process.send?.({ status, stdout: stdout.end(), stderr: stderr.end() } satisfies Ended)
}

function capture(name: Output): { end(): string } {
  const stream = process[name]
  const { write } = stream
  let text = ''
  stream.write = (chunk: string | Uint8Array, ...rest: unknown[]): boolean => {
    text += String(chunk)
    const [done] = rest.filter((one) => typeof one === 'function')
    done?.()
    return true
  }
  return {
    end() {
      stream.write = write
      return text
    },
  }
}
