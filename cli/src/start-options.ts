// The command line of the coordinator → options, with what is wrong said in a sentence.
import { type MetricsReaders, RELAY_GIGABYTES, type StoragePlaces } from '@starling-grid/coordinator'
import { DEFAULT_TIMING, type Timing } from '@starling-grid/coordinator/run'
import { DEFAULT_PORT, LINK_OPEN_MS, MAX_LINK_OPEN_MS, MIN_LINK_OPEN_MS } from '@starling-grid/protocol'
import { Command, InvalidArgumentError, Option } from 'commander'
import { doorOptions, readPort } from './arguments.ts'
import { type LogFlags, logOptions } from './process-log.ts'
import { completeSettings, type Settings, withSettings } from './settings.ts'
import { blobsOption, stateOption } from './storage-options.ts'

const SECOND_MS = 1000
/** below the 30 s after which Kubernetes ends a process, and the 90 s of systemd */
const DRAIN_SECONDS = 20
const MAX_DRAIN_SECONDS = 600
/** 2 Gbit/s for an hour */
const MAX_RELAY_GIGABYTES = 1000

/** The door for other machines. */
interface DoorFlags {
  readonly https?: number
  /** files of its certificate and key */
  readonly cert?: string
  readonly key?: string
  readonly publicUrl?: URL
}

/** Where it listens, and how members reach it and each other. */
export interface NetworkFlags extends DoorFlags {
  readonly port: number
  readonly host: string
  readonly allowedHost?: readonly string[]
  readonly trustedProxy?: readonly string[]
  readonly iceServer?: readonly string[]
  readonly turnSecret?: string
  /** seconds */
  readonly linkOpen: number
  readonly lan?: boolean
  /** GB */
  readonly relayQuota: number
}

interface StartToken {
  readonly token?: string
  /** the token stands on the command line, where process lists show it */
  readonly tokenIsShown: boolean
  readonly tokenFile?: string
}

export interface StartOptions extends NetworkFlags, StoragePlaces, LogFlags, StartToken {
  readonly accessLog?: boolean
  /** seconds */
  readonly drain: number
  readonly takeOver?: boolean
  readonly job?: string
  /** the address of the database stands there, with a password */
  readonly passwordIsShown: boolean
  readonly participation: 'open' | 'invited'
  readonly dataRoot: string
  readonly webRoot?: string
  readonly metrics: MetricsReaders
  readonly metricsTokenFile?: string
  readonly timing?: Partial<Timing>
  readonly json?: boolean
}

/** Settings whose values are shown to no one; an address only where it holds a password. */
const SECRETS = ['token', 'turnSecret', 'state', 'blobs']

export interface StartSettings extends Settings {
  readonly options: StartOptions
}

/**
 * Of the command line, the environment and the file of --config.
 * @throws CommanderError after saying what is wrong, or after --help; GridError 'usage'
 */
export async function startSettings(argv: readonly string[]): Promise<StartSettings> {
  const command = startCommand().parse([...argv], { from: 'user' })
  const settings = await completeSettings(command, { secrets: SECRETS })
  return { ...settings, options: optionsOf(command) }
}

/** Of the command line alone. @throws CommanderError after saying what is wrong, or after --help */
export function parseOptions(argv: readonly string[]): StartOptions {
  return optionsOf(startCommand().parse([...argv], { from: 'user' }))
}

// oxlint-disable-next-line max-lines-per-function -- the options of one command, a line for each
export function startCommand(): Command {
  const command = new Command('starling start')
    .description(
      'Runs the coordinator: hands out work, keeps versions, serves the pages. Ctrl-C once drains, ' +
        'twice leaves at once.',
    )
    .option('--port <port>', '0 for any free one', readPort, DEFAULT_PORT)
    .option('--data-dir <folder>', 'journal and versions', 'starling-data')
    .option(
      '--datasets-dir <folder>',
      'data folder whose imported datasets and models jobs may name; absent: --data-dir',
    )
    .addOption(stateOption())
    .addOption(blobsOption())
    .option('--data-root <folder>', 'jobs may read datasets inside this folder, links followed, and no others', '.')
    .option('--take-over', 'displace the coordinator that uses this data folder now; it ends by itself')
    .option('--job <file>', 'JSON file of a job that is submitted when none is unfinished')
    .addOption(
      new Option('--token <token>', 'owner token of job control; made at the first start otherwise').env(
        'STARLING_TOKEN',
      ),
    )
    .addOption(
      new Option('--token-file <file>', 'file that holds the owner token, which process lists do not show').conflicts(
        'token',
      ),
    )
    .addOption(
      new Option(
        '--participation <who>',
        'open: any volunteer; invited: those with an invite (`starling invite create`)',
      )
        .choices(['open', 'invited'])
        .default('open'),
    )
    .option(
      '--allowed-host <name...>',
      'other names that requests may call it by, such as that of its service in a cluster',
    )
    .option(
      '--trusted-proxy <address...>',
      'proxies in front of it, such as 127.0.0.1 or 10.0.0.0/8: their X-Forwarded-For says who asks',
    )
    .option('--web-root <folder>', 'the built web pages; built when they are missing or stale otherwise')
    .option(
      '--ice-server <url...>',
      'STUN or TURN servers for volunteers behind routers, for example stun:stun.example.org:3478 ' +
        'turn:turn.example.org:3478',
    )
    .addOption(
      new Option(
        '--turn-secret <secret>',
        "the TURN servers' static-auth-secret: each volunteer gets credentials of its own, for ten minutes at a time",
      ).env('STARLING_TURN_SECRET'),
    )
    .option(
      '--lan',
      'volunteers may tell each other their private addresses wherever they come from: for jobs within one network',
    )
    .option(
      '--link-open <seconds>',
      'for two volunteers to open a link, before their frames go through this coordinator; ' +
        'more where networks are slow',
      readLinkOpen,
      LINK_OPEN_MS / SECOND_MS,
    )
    .option(
      '--relay-quota <GB>',
      'that this coordinator relays in an hour for one member whose links do not open, ' +
        'and four times as many for one address',
      readGigabytes,
      RELAY_GIGABYTES,
    )
    .addOption(
      new Option(
        '--metrics <readers>',
        'who reads /metrics without a token: processes of this machine, none, or anyone',
      )
        .choices(['local', 'token', 'public'] satisfies MetricsReaders[])
        .default('local'),
    )
    .option('--metrics-token-file <file>', "file with a token that is good for /metrics alone, beside the owner's")
    .option(
      '--drain <seconds>',
      'for runs to end their step and write a checkpoint when this process is told to end',
      readDrain,
      DRAIN_SECONDS,
    )
    .option('--access-log', 'also log each answered request, at level info')
    .option('--json', 'one JSON line with url, port and the file of the owner token on stdout when it listens')
    .addOption(new Option('--timing <json>').argParser(readTiming).hideHelp())
    .exitOverride()
  for (const option of [...doorOptions(), ...logOptions()]) command.addOption(option)
  return withSettings(command)
}

function optionsOf(command: Command): StartOptions {
  const options = command.opts<StartOptions>()
  if (options.https === undefined && (options.cert !== undefined || options.key !== undefined))
    command.error('error: expected --https with --cert and --key, got none; add it')
  return {
    ...options,
    tokenIsShown: command.getOptionValueSource('token') === 'cli',
    passwordIsShown: command.getOptionValueSource('state') === 'cli' && hasPassword(options.state),
  }
}

function hasPassword(url: string | undefined): boolean {
  return url !== undefined && URL.canParse(url) && new URL(url).password !== ''
}

function readLinkOpen(text: string): number {
  const ms = SECOND_MS * Number(text)
  if (!(ms >= MIN_LINK_OPEN_MS && ms <= MAX_LINK_OPEN_MS))
    throw new InvalidArgumentError(
      `expected ${MIN_LINK_OPEN_MS / SECOND_MS} to ${MAX_LINK_OPEN_MS / SECOND_MS} seconds`,
    )
  return ms / SECOND_MS
}

function readDrain(text: string): number {
  const seconds = Number(text)
  if (!(seconds >= 0 && seconds <= MAX_DRAIN_SECONDS))
    throw new InvalidArgumentError(`expected 0 to ${MAX_DRAIN_SECONDS} seconds`)
  return seconds
}

function readGigabytes(text: string): number {
  const gigabytes = Number(text)
  if (!(gigabytes > 0 && gigabytes <= MAX_RELAY_GIGABYTES))
    throw new InvalidArgumentError(`expected more than 0 and at most ${MAX_RELAY_GIGABYTES} GB`)
  return gigabytes
}

/**
 * The times of a run that the command line changes. Who waits longer for links waits as much longer for a ring to form
 * (R17).
 */
export function timingOf({ linkOpen, timing }: Pick<StartOptions, 'linkOpen' | 'timing'>): Partial<Timing> {
  const linkOpenMs = Math.round(SECOND_MS * linkOpen)
  return { linkOpenMs, formMs: DEFAULT_TIMING.formMs + Math.max(0, linkOpenMs - LINK_OPEN_MS), ...timing }
}

/** For tests that cannot wait: any of the times of run/timing.ts. */
function readTiming(text: string): Partial<Timing> {
  const value = parseAny(text)
  const isTiming =
    typeof value === 'object' &&
    value !== null &&
    Object.entries(value).every(([key, time]) => key in DEFAULT_TIMING && typeof time === 'number')
  if (!isTiming)
    throw new InvalidArgumentError(
      `expected an object with numbers for some of ${Object.keys(DEFAULT_TIMING).join(', ')}`,
    )
  return value as Partial<Timing>
}

function parseAny(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
