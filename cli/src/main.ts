// What `starling NAME` of a user's command runs.
import { COMMANDS } from './commands.ts'
import { runCommand } from './run-command.ts'

// Not left to the event loop: a native library that still has threads would keep a finished command alive.
process.exit(await runCommand(COMMANDS, process.argv.slice(2)))
