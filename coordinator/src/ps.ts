import { describeError, isGridError } from '@starling-grid/protocol'
// `starling ps URL --range I/N`: options, and an end on a signal.
import { Command, CommanderError } from 'commander'
import { serveShard } from './parameter-server/shard-process.ts'

const FAILURE = 1
const WRONG_USE = 2

async function main(argv: readonly string[]): Promise<void> {
  const program = new Command('starling ps')
    .description(
      "One key range of a coordinator's parameter server in a process of its own. Used from the next time that the server takes over, when all N are there.",
    )
    .argument('<url>', 'the coordinator, for example http://localhost:8790')
    .requiredOption('--range <i/n>', 'which of how many ranges, counted from 0')
    .option('--token <token>', "the owner's token; STARLING_TOKEN otherwise", process.env['STARLING_TOKEN'])
    .exitOverride()
    .parse(argv, { from: 'user' })
  const { range, token = '' } = program.opts<{ range: string; token?: string }>()
  const end = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => end.abort())
  await serveShard({ url: program.args[0] ?? '', range, token, log: (line) => console.error(line) }, end.signal)
}

try {
  await main(process.argv.slice(2))
} catch (error) {
  if (!(error instanceof CommanderError)) console.error(describeError(error))
  process.exitCode = exitCodeOf(error)
}

function exitCodeOf(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : WRONG_USE
  const isWrongUse = isGridError(error) && (error.code === 'usage' || error.code === 'message-malformed')
  return isWrongUse ? WRONG_USE : FAILURE
}
