// Commands that break things on purpose: chaos in a whole grid, faults in simulated ones, and mutants in a copy of this
// tree.
import { runCommand, type RunCommand } from '@starling-grid/cli'

const COMMANDS: Readonly<Record<string, () => Promise<RunCommand>>> = {
  chaos: async () => (await import('./commands/chaos.ts')).chaos,
  simulate: async () => (await import('./commands/simulate.ts')).simulate,
  mutants: async () => (await import('./commands/mutants.ts')).mutants,
}

process.exit(await runCommand(COMMANDS, process.argv.slice(2)))
