// The headless volunteer's command line: one command per file, loaded when it is called.
import { runCommand, type RunCommand } from './run-command.ts'

const COMMANDS: Readonly<Record<string, () => Promise<RunCommand>>> = {
  volunteer: async () => (await import('./commands/volunteer.ts')).volunteer,
  doctor: async () => (await import('./commands/doctor.ts')).doctor,
  explain: async () => (await import('./commands/explain.ts')).explain,
  golden: async () => (await import('./commands/golden.ts')).golden,
}

// Not left to the event loop: a native library that still has threads would keep a finished command alive.
process.exit(await runCommand(COMMANDS, process.argv.slice(2)))
