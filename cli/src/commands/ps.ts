// `starling ps URL --range I/N`: options, and an end on a signal.
import { readRange, serveShard } from '@starling-grid/coordinator/shard-process'
import { describeError } from '@starling-grid/protocol'
import { Command, InvalidArgumentError } from 'commander'

export async function ps(argv: readonly string[]): Promise<number> {
  const program = new Command('starling ps')
    .description(
      "One key range of a coordinator's parameter server in a process of its own. " +
        'Used from the next time that the server takes over, when all N are there.',
    )
    .argument('<url>', 'the coordinator, for example http://localhost:8790')
    .requiredOption('--range <i/n>', 'which of how many ranges, counted from 0', rangeText)
    .option('--token <token>', "the owner's token; STARLING_TOKEN otherwise", process.env['STARLING_TOKEN'])
    .exitOverride()
    .parse(argv, { from: 'user' })
  const { range, token = '' } = program.opts<{ range: string; token?: string }>()
  const end = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => end.abort())
  await serveShard({ url: program.args[0] ?? '', range, token, log: (line) => console.error(line) }, end.signal)
  return 0
}

function rangeText(text: string): string {
  try {
    readRange(text)
    return text
  } catch (error) {
    throw new InvalidArgumentError(describeError(error))
  }
}
