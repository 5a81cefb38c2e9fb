// `lend`: this machine computes for one volunteer of its rack, which counts as one member with it, until Ctrl-C is
// pressed.
import { randomBytes } from 'node:crypto'
import { type ListenPlace, listenPlaceIn } from '@starling-grid/client-node/host'
import { executorOpener, lendMachine, LENT_PORT, nameOf } from '@starling-grid/client-node/rack'
import { GridError } from '@starling-grid/protocol'
import { DEFAULT_LIMITS } from '@starling-grid/volunteer'
import { Command, Option } from 'commander'
import { addressesOfThisMachine } from '../certificate.ts'
import { addComputeOptions, type ComputeFlags, seatNames, seatsOf, sizeOption } from '../compute-options.ts'
import { type LogFlags, logOptions, processLog } from '../process-log.ts'
import { RACK_KEY_TEXT, RACK_KEY_VARIABLE, rackKeyFrom } from '../rack-key.ts'
import { completeSettings, withSettings } from '../settings.ts'

const KEY_BYTES = 32
const LISTEN_TEXT = `where the volunteer reaches it; port ${LENT_PORT} of all addresses by default`
const MEMORY_TEXT = 'bytes that a model may take here; models that need more are refused'

interface LendOptions extends ComputeFlags, LogFlags {
  readonly listen?: ListenPlace
  readonly rackKeyFile?: string
  /** bytes */
  readonly maxMemory: number
}

export function lendCommand(): Command {
  const command = new Command('starling lend')
    .description(
      'Lends this machine to one volunteer of its rack: both are one member, and share each batch. Ctrl-C ends it.',
    )
    .addOption(new Option('--listen <address[:port]>', LISTEN_TEXT).argParser(listenPlaceIn))
    .option('--rack-key-file <file>', RACK_KEY_TEXT)
    .addOption(sizeOption('--max-memory <size>', MEMORY_TEXT, DEFAULT_LIMITS.memoryBytes))
    .exitOverride()
  addComputeOptions(command)
  for (const option of logOptions()) command.addOption(option)
  return withSettings(command)
}

export async function lend(argv: string[]): Promise<number> {
  const program = lendCommand().parse(argv, { from: 'user' })
  const { printed, warnings } = await completeSettings(program, { secrets: [] })
  if (printed !== undefined) {
    process.stdout.write(printed)
    return 0
  }
  const options = program.opts<LendOptions>()
  const { logFormat, logLevel = 'info', listen = {}, maxMemory, rackKeyFile } = options
  const log = processLog({ logFormat, logLevel })
  const say = (text: string): void => log({ level: 'info', message: text })
  for (const message of warnings) log({ level: 'warn', message })
  const given = await rackKeyFrom(rackKeyFile)
  const key = given ?? randomBytes(KEY_BYTES)
  const gpus = await seatsOf(options)
  if (gpus) say(`computes on ${seatNames(gpus)}`)
  const { address: host, ports: [port, last] = [LENT_PORT, LENT_PORT] } = listen
  if (port !== last) throw new GridError('usage', `expected --listen with one port, got ${port} to ${last}`)
  const machine = await lendMachine({
    host,
    port,
    key,
    maxBytes: maxMemory,
    openExecutor: executorOpener({ ...options, asGpu: options.as === 'gpu', gpus, say }),
    say,
  })
  say(`lends this machine at port ${machine.port}; Ctrl-C ends it`)
  for (const line of nextSteps({ host, port: machine.port }, given === undefined ? key : undefined)) say(line)
  await untilSignal()
  say('ends')
  await machine.close()
  return 0
}

/** `key`: made here, and shown this once. */
function nextSteps(
  { host, port }: { readonly host: string | undefined; readonly port: number },
  key: Buffer | undefined,
): string[] {
  const at = nameOf({ host: host ?? addressesOfThisMachine()[0] ?? '127.0.0.1', port })
  const secret = key === undefined ? '' : `${RACK_KEY_VARIABLE}=${key.toString('hex')} `
  return [`start the volunteer of this rack with: ${secret}npm run volunteer -- URL --machines ${at}`]
}

function untilSignal(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve())
  })
}
