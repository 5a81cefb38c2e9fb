// `volunteer URL`: lends this machine to a coordinator, job after job, until Ctrl-C is pressed.
import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { createNodeHost, type ListenPlace, listenPlaceIn, type NodeHostOptions } from '@starling-grid/client-node/host'
import { pinCertificate } from '@starling-grid/client-node/pinned-certificate'
import { type MachineAddress, machinesIn, nameOf } from '@starling-grid/client-node/rack'
import { DEFAULT_DISK_BYTES } from '@starling-grid/client-node/shard-cache'
import { describeError, GridError, jobId, MAX_NAME_LENGTH } from '@starling-grid/protocol'
import {
  createVolunteer,
  DEFAULT_BLOCK_FLOPS,
  DEFAULT_LIMITS,
  type VolunteerHost,
  type VolunteerStatus,
} from '@starling-grid/volunteer'
import { Command, Option } from 'commander'
import { addComputeOptions, type ComputeFlags, seatNames, seatsOf, sizeOption } from '../compute-options.ts'
import { type LogFlags, logOptions, processLog } from '../process-log.ts'
import { RACK_KEY_TEXT, RACK_KEY_VARIABLE, rackKeyFrom } from '../rack-key.ts'
import { completeSettings, withSettings } from '../settings.ts'
import { StatusLog } from '../terminal/status-log.ts'
import { TerminalStatus } from '../terminal/terminal-status.ts'

/** exit code of a process that was told twice to stop */
const INTERRUPTED = 130

/** What the owner gives at most. */
interface LimitFlags {
  /** bytes */
  readonly maxMemory: number
  readonly maxUpload: number
  readonly maxDisk: number
  /** TFLOP of one block */
  readonly maxWork: number
}

/** How it reaches others. */
interface LinkFlags {
  readonly allowIce: readonly string[]
  readonly relaysOnly?: boolean
  readonly tcp: boolean
  readonly listen?: ListenPlace
}

/** Other machines that compute with it. */
interface RackFlags {
  readonly machines?: readonly MachineAddress[]
  readonly rackKeyFile?: string
}

interface VolunteerCommandOptions extends LogFlags, LimitFlags, LinkFlags, ComputeFlags, RackFlags {
  readonly url?: string
  readonly name: string
  readonly once?: boolean
  readonly job?: string
  readonly fingerprint?: string
  readonly inviteFile?: string
  readonly also: readonly string[]
}

const MEMORY_TEXT = 'bytes of one job, on this machine and its GPU together; jobs that need more are not taken'
const UPLOAD_TEXT = 'bytes sent in an hour; the volunteer rests when they are spent'
const WORK_TEXT = 'computing of one block, in TFLOP; jobs with larger blocks are not taken'
const MACHINES_TEXT =
  'other machines of its rack, each lent by `starling lend`, that compute with this one as one member: ' +
  'HOST[:PORT],HOST[:PORT]'
const LISTEN_TEXT =
  'where other Node volunteers link to this one over TCP; by default any port of all interfaces, or of this machine ' +
  'alone when the coordinator is on it'
const TERA = 1e12
const HOW_TO_LEAVE = 'Ctrl-C leaves gracefully'
/** An invite link holds a code. */
const SECRETS = ['url']

function tflopsIn(text: string): number {
  const tflops = Number(text)
  if (tflops > 0 && Number.isFinite(tflops)) return tflops
  throw new GridError('usage', `expected --max-work as a number of TFLOP above 0, got ${text.slice(0, 20)}`)
}

export function volunteerCommand(): Command {
  const command = new Command('starling volunteer')
    .description(
      'Lends this machine to a coordinator, job after job. Ctrl-C leaves gracefully, twice at once. ' +
        'Exit code 0 when it left.',
    )
    .argument('[url]', 'address of the coordinator, for example http://localhost:8790, or an invite link')
    .option('--url <url>', 'the same, for the environment and --config')
    .option('--name <name>', 'shown to others', `volunteer-${randomBytes(2).toString('hex')}`)
    .option(
      '--allow-ice <host...>',
      "hosts of STUN and TURN servers that may be asked, beside the coordinator's own",
      [],
    )
    .option(
      '--also <url...>',
      'other coordinators of this grid that you trust; those at names of the same authority need not be named',
      [],
    )
    .addOption(sizeOption('--max-memory <size>', MEMORY_TEXT, DEFAULT_LIMITS.memoryBytes))
    .addOption(sizeOption('--max-upload <size>', UPLOAD_TEXT, DEFAULT_LIMITS.uploadBytesPerHour))
    .addOption(new Option('--max-work <tflop>', WORK_TEXT).default(DEFAULT_BLOCK_FLOPS / TERA).argParser(tflopsIn))
    .addOption(sizeOption('--max-disk <size>', 'bytes of data that are kept for later', DEFAULT_DISK_BYTES))
    .option(
      '--relays-only',
      'show the address of this machine to no other volunteer, and share no kernel measurements: all links go ' +
        'through the coordinator',
    )
    .option('--no-tcp', 'neither take nor dial links over TCP; WebRTC instead')
    .addOption(new Option('--listen <address[:port[-port]]>', LISTEN_TEXT).argParser(listenPlaceIn))
    .option(
      '--fingerprint <sha256>',
      'of the certificate of a coordinator with --https, as it printed at its start: this one is trusted and no other',
    )
    .option('--job <id>', 'lend this machine to this job alone, until the job ends')
    .option('--invite-file <file>', 'with the code or link of an invite; STARLING_INVITE, or the link, otherwise')
    .option('--once', 'end with the run that it takes part in')
    .addOption(new Option('--machines <places>', MACHINES_TEXT).argParser(machinesIn))
    .option('--rack-key-file <file>', RACK_KEY_TEXT)
    .exitOverride()
  addComputeOptions(command)
  for (const option of logOptions()) command.addOption(option)
  return withSettings(command)
}

export async function volunteer(argv: string[]): Promise<number> {
  const program = volunteerCommand().parse(argv, { from: 'user' })
  const { printed, warnings } = await completeSettings(program, { secrets: SECRETS })
  if (printed !== undefined) {
    process.stdout.write(printed)
    return 0
  }
  const options = program.opts<VolunteerCommandOptions>()
  const { name, once = false, job, fingerprint, inviteFile, also } = options
  if (name.length === 0 || name.length > MAX_NAME_LENGTH)
    throw new GridError(
      'usage',
      `expected a --name of 1 to ${MAX_NAME_LENGTH} characters, got ${name.length}; choose another`,
    )
  const address = program.args[0] ?? options.url ?? ''
  const coordinatorUrl = originOf(address)
  const invite = await inviteFor(address, inviteFile)
  if (fingerprint !== undefined) await pinCertificate(coordinatorUrl, fingerprint)
  const screen = screenOf(options)
  screen.say(`lends this machine to ${coordinatorUrl}`, `volunteer "${name}" → ${coordinatorUrl}  (${HOW_TO_LEAVE})`)
  for (const message of warnings) screen.warn(message)
  const gpus = await seatsOf(options)
  if (gpus) screen.say(`computes on ${seatNames(gpus)}`, `adapters ${seatNames(gpus)}, as one member`)
  const rack = await rackOf(options)
  if (rack) screen.say(`computes with ${rackNames(rack)}`, `with ${rackNames(rack)}, as one member`)
  const taking = createVolunteer(hostOf(coordinatorUrl, options, { gpus, rack }), {
    name,
    once,
    ...(job === undefined ? {} : { job: jobId(job) }),
    invite,
    coordinators: also.map(originOf),
    onStatus: (status) => screen.show(status),
  })
  leaveOnSignal(() => {
    screen.say('leaves', '\nleaving; Ctrl-C again leaves at once')
    return taking.stop()
  })
  await taking.run()
  return 0
}

type Rack = NonNullable<NodeHostOptions['rack']>

/** @throws GridError 'usage' where machines are named without the key of their rack */
async function rackOf({ machines, rackKeyFile }: RackFlags): Promise<Rack | undefined> {
  if (machines === undefined) return undefined
  const key = await rackKeyFrom(rackKeyFile)
  if (key !== undefined) return { machines, key }
  throw new GridError(
    'usage',
    `expected the key of the rack beside --machines, got none; set ${RACK_KEY_VARIABLE} or name --rack-key-file, ` +
      'as `starling lend` printed it on those machines',
  )
}

function rackNames({ machines }: Rack): string {
  return machines.map(nameOf).join(' and ')
}

function hostOf(
  coordinatorUrl: string,
  options: VolunteerCommandOptions,
  devices: Pick<NodeHostOptions, 'gpus' | 'rack'>,
): VolunteerHost {
  const { adapter, executor, threads, allowIce, relaysOnly = false, tcp, listen = {} } = options
  const { maxMemory: memoryBytes, maxUpload: uploadBytesPerHour, maxDisk, maxWork } = options
  return createNodeHost({
    coordinatorUrl,
    executor,
    asGpu: options.as === 'gpu',
    adapter,
    ...devices,
    threads,
    allowedIce: allowIce,
    limits: { memoryBytes, uploadBytesPerHour, blockFlops: maxWork * TERA },
    maxDiskBytes: maxDisk,
    relaysOnly,
    tcp: tcp && listen,
  })
}

interface Screen {
  /** one text for programs that read the log, another for people */
  say(logged: string, shown: string): void
  warn(message: string): void
  show(status: VolunteerStatus): void
}

/** Lines of JSON, or a status for people that is redrawn. */
function screenOf({ name, logFormat, logLevel = 'info' }: VolunteerCommandOptions): Screen {
  const log = processLog({ logFormat, logLevel })
  const isJson = logFormat === 'json'
  const status = isJson ? new StatusLog(log, name) : new TerminalStatus(process.stderr)
  return {
    say: (logged, shown) => {
      if (isJson) log({ level: 'info', message: logged, member: name })
      else process.stderr.write(`${shown}\n`)
    },
    warn: (message) => log({ level: 'warn', message, member: name }),
    show: (now) => status.show(now),
  }
}

/** What a volunteer says to a coordinator that asks for an invite. @throws GridError 'usage' */
async function inviteFor(url: string, file: string | undefined): Promise<string | undefined> {
  const inLink = codeIn(url)
  if (inLink !== undefined) return inLink
  const given = file === undefined ? process.env['STARLING_INVITE'] : await readInvite(file)
  if (given === undefined || given.trim() === '') return undefined
  return codeIn(given.trim()) ?? given.trim()
}

async function readInvite(file: string): Promise<string> {
  return readFile(file, 'utf8').catch((cause: unknown) => {
    throw new GridError(
      'usage',
      `expected a file with an invite, got ${file} (${describeError(cause)}); name another`,
      {
        cause,
      },
    )
  })
}

/** The code behind the # of an invite link, which no request carries. */
function codeIn(link: string): string | undefined {
  return new URLSearchParams(link.split('#', 2)[1] ?? '').get('invite') ?? undefined
}

/** @throws GridError 'usage' when it is no http address */
function originOf(text: string): string {
  try {
    const url = new URL(text.includes('://') ? text : `http://${text}`)
    if (url.protocol === 'http:' || url.protocol === 'https:') return url.origin
  } catch {
    // said below
  }
  throw new GridError('usage', `expected the coordinator's address such as http://localhost:8790, got "${text}"`)
}

/** Leaves once: leases return, and the coordinator informs the other members. Twice: at once. */
function leaveOnSignal(stop: () => Promise<void>): void {
  let asked = false
  const onSignal = (): void => {
    if (asked) process.exit(INTERRUPTED)
    asked = true
    void stop()
  }
  process.on('SIGINT', onSignal)
  process.on('SIGTERM', onSignal)
}
