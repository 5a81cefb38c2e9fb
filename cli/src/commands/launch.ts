// `starling launch -n 4 program.ts`: a program in several processes that are one group, as `mpirun` and `horovodrun`
// do. The processes of one machine meet at their launcher, those of several at a coordinator.
import { spawn, type ChildProcess } from 'node:child_process'
import { access } from 'node:fs/promises'
import { resolve } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import {
  type RankProgram,
  type RunningRanks,
  type ProcessSeat,
  startLocalGroup,
  startRanks,
} from '@starling-grid/client-node'
import { openApi } from '@starling-grid/client/connection'
import { CoordinatorApi, isPassing } from '@starling-grid/client/coordinator-api'
import { GridError, type MemberId, memberId, newMemberId, ROUTES, systemClock } from '@starling-grid/protocol'
import { Command, Option } from 'commander'
import { type ConnectionFlags, withConnection } from '../api/connection.ts'
import { wholeNumber } from '../arguments.ts'

const STARLING = fileURLToPath(new URL('../../../bin/starling.mjs', import.meta.url))
/** Where a launcher on another machine finds the group that its ranks belong to: ID.SECRET. */
const GROUP_VARIABLE = 'STARLING_GROUP'
/** ms between two looks at whether all ranks are there */
const ASK_MS = 500
/** ms until all ranks of all machines must be there */
const FILL_MS = 10 * 60_000

interface LaunchFlags extends ConnectionFlags {
  readonly ranks: number
  readonly size?: number
  readonly hosts?: readonly string[]
}

/** A group that meets at a coordinator. */
interface OpenGroup {
  readonly url: string
  readonly id: string
  readonly secret: string
}

export async function launch(argv: readonly string[]): Promise<number> {
  const program = withConnection(
    new Command('starling launch')
      .description(
        'Runs a program in several processes. Each calls `init()` of @starling-grid/client and has its rank of one ' +
          'group. The first rank that fails ends all. On several machines they meet at a coordinator (--url).',
      )
      .requiredOption('-n, --ranks <n>', 'processes to start here; with --hosts, on all of them', wholeNumber(1)),
  )
    .option('--size <n>', 'ranks of the group, when launchers on other machines bring the rest', wholeNumber(1))
    .addOption(
      new Option('--hosts <names>', 'start the ranks on these machines, by ssh, in a folder of this path')
        .argParser((text: string) => text.split(',').filter((host) => host !== ''))
        .conflicts('size'),
    )
    .argument('<program>', 'a TypeScript or JavaScript file')
    .argument('[args...]', 'for the program')
    .passThroughOptions()
    .exitOverride()
    .parse([...argv], { from: 'user' })
  const [file = '', ...args] = program.args
  await requireProgram(file)
  const options = program.opts<LaunchFlags>()
  const rank: RankProgram = { file: resolve(file), args, output: 'pipe', isOne: true, onStarted: printWithRank }
  const joined = joinedGroup(options, process.env[GROUP_VARIABLE])
  if (joined !== undefined) await (await meet(joined, options.ranks, rank)).ended
  else if (options.hosts !== undefined) await runOnHosts(options, [file, ...args])
  else if (options.size !== undefined) await runWithOthers(options, options.size, rank)
  else await (await startLocalGroup({ ...rank, size: options.ranks })).ended
  return 0
}

/** @throws GridError 'usage' */
async function requireProgram(file: string): Promise<void> {
  await access(file).catch((cause: unknown) => {
    throw new GridError('usage', `expected a program, got ${file}, which cannot be read; name a file`, { cause })
  })
}

/** The group that another launcher opened. @throws GridError 'usage' */
function joinedGroup({ url }: LaunchFlags, text: string | undefined): OpenGroup | undefined {
  if (text === undefined || text === '') return undefined
  const [, id, secret] = /^([0-9a-f]{32})\.([0-9a-f]{64})$/.exec(text) ?? []
  if (id === undefined || secret === undefined || url === undefined)
    throw new GridError(
      'usage',
      `expected ${GROUP_VARIABLE} as the first launcher printed it, and --url; copy the whole line that it printed`,
    )
  return { url, id, secret }
}

async function openGroup(options: LaunchFlags, size: number): Promise<OpenGroup> {
  const api = await openApi(options)
  return { url: api.url, ...(await api.openGroup(size)) }
}

/** RunningRanks of this machine, and others that a person starts elsewhere. */
async function runWithOthers(options: LaunchFlags, size: number, rank: RankProgram): Promise<void> {
  if (size < options.ranks)
    throw new GridError('usage', `expected --size of at least ${options.ranks} ranks, got ${size}; start fewer here`)
  const group = await openGroup(options, size)
  const rest = size - options.ranks
  if (rest > 0)
    console.error(
      `${rest} more ranks are wanted. On other machines, with -n of ${rest} or less in all, within 10 minutes:\n` +
        `  ${GROUP_VARIABLE}=${group.id}.${group.secret} starling launch -n ${rest} --url ${group.url} PROGRAM`,
    )
  await (
    await meet(group, options.ranks, rank)
  ).ended
}

/** Brings ranks, waits for all others, and starts those of this machine. */
async function meet(group: OpenGroup, ranks: number, program: RankProgram): Promise<RunningRanks> {
  const own = Array.from({ length: ranks }, newMemberId)
  const { members, iceServers } = await allRanks(group, own)
  const { url, secret: token } = group
  const seats = own.map((self, i): ProcessSeat => {
    const access = { url, path: ROUTES.groupSignalling, self, token, iceServers: iceServers[i] ?? [] }
    return { access, members }
  })
  return startRanks(seats, program)
}

/** @throws GridError 'link-timeout' when some never come */
async function allRanks(
  { url, id, secret }: OpenGroup,
  own: readonly MemberId[],
): Promise<{
  readonly members: readonly MemberId[]
  readonly iceServers: readonly ProcessSeat['access']['iceServers'][]
}> {
  const api = new CoordinatorApi({ url, token: secret })
  const until = systemClock.now() + FILL_MS
  let missing: number | undefined
  while (systemClock.now() < until) {
    const seats = await api.bringRanks(id, own).catch((error: unknown) => {
      if (isPassing(error)) return undefined // the coordinator starts, or an answer was lost
      throw error
    })
    if (seats?.members !== undefined)
      return { members: seats.members.map(memberId), iceServers: seats.iceServers ?? [] }
    if (seats !== undefined && seats.missing !== missing) console.error(`waiting for ${seats.missing} more ranks`)
    missing = seats?.missing ?? missing
    await systemClock.sleep(ASK_MS)
  }
  throw new GridError('link-timeout', `expected all ranks within 10 minutes, got ${missing ?? 'no answer'} missing`)
}

/** A launcher on each machine; the first that fails ends all. */
async function runOnHosts(options: LaunchFlags, program: readonly string[]): Promise<void> {
  const { hosts = [], ranks } = options
  if (hosts.length === 0 || hosts.length > ranks)
    throw new GridError('usage', `expected 1 to ${ranks} hosts for ${ranks} ranks, got ${hosts.length}; name others`)
  const group = await openGroup(options, ranks)
  const launchers = hosts.map((host, i) => {
    const count = Math.floor(((i + 1) * ranks) / hosts.length) - Math.floor((i * ranks) / hosts.length)
    return { host, child: launchOn(host, { count, group, program }) }
  })
  let failure: GridError | undefined
  const ends = launchers.map(async ({ host, child }) => {
    const end = await endOf(child)
    if (end === 0 || failure !== undefined) return
    failure = new GridError('unsupported', `expected all machines to end with 0, got ${end} of ${host}`)
    for (const other of launchers) other.child.kill()
  })
  await Promise.all(ends)
  if (failure !== undefined) throw failure
}

/** The secret goes through stdin: process lists of both machines show command lines. */
function launchOn(
  host: string,
  { count, group, program }: { readonly count: number; readonly group: OpenGroup; readonly program: readonly string[] },
): ChildProcess {
  const command = [process.execPath, STARLING, 'launch', '-n', String(count), '--url', group.url, ...program]
  const script =
    `read -r ${GROUP_VARIABLE} && export ${GROUP_VARIABLE} && cd ${quoted(process.cwd())} && ` +
    `exec ${command.map(quoted).join(' ')}`
  const ssh = process.env['STARLING_SSH'] ?? 'ssh'
  const child = spawn(ssh, [host, script], { stdio: ['pipe', 'inherit', 'inherit'] })
  child.stdin?.on('error', () => undefined) // its end says what was wrong
  child.stdin?.end(`${group.id}.${group.secret}\n`)
  return child
}

/** One word of a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`
}

function endOf(child: ChildProcess): Promise<number | string> {
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message))
    child.once('exit', (code, signal) => resolve(code ?? signal ?? 'nothing'))
  })
}

/** Whole lines, so that ranks do not write into each other's. */
function printWithRank({ stdout, stderr }: ChildProcess, rank: number): void {
  printLines(stdout, process.stdout, rank)
  printLines(stderr, process.stderr, rank)
}

function printLines(from: Readable | null, to: Writable, rank: number): void {
  if (from === null) throw new Error('internal: a rank was started without pipes')
  createInterface({ input: from }).on('line', (line) => to.write(`[${rank}] ${line}\n`))
}
