// Commands that run a whole grid on this machine: demo, train, parity, chaos; and the one that breaks lines of it:
// mutants. The one place where a thrown error becomes a message.
import { describeError, isGridError } from '@starling-grid/protocol'
import { CommanderError } from 'commander'

type RunCommand = (argv: string[]) => Promise<number>

const COMMANDS: Readonly<Record<string, () => Promise<RunCommand>>> = {
  demo: async () => (await import('./commands/demo.ts')).demo,
  train: async () => (await import('./commands/train.ts')).train,
  parity: async () => (await import('./commands/parity.ts')).parity,
  chaos: async () => (await import('./commands/chaos.ts')).chaos,
  mutants: async () => (await import('./commands/mutants.ts')).mutants,
}

async function main([name = '', ...args]: readonly string[]): Promise<number> {
  const load = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (load === undefined) throw new Error(`internal: no command "${name}"`)
  try {
    return await (
      await load()
    )(args)
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
    console.error(describeError(error))
    return isGridError(error) && error.code === 'usage' ? 2 : 1
  }
}

process.exit(await main(process.argv.slice(2)))
