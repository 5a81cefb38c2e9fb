// Groups of processes: starts those of this machine, gives each its Communicator, and introduces those of a group that
// is all on this machine. The links are the same as between Node volunteers: TCP, and WebRTC where that does not open.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { describeError, GridError, type MemberId, memberId, newMemberId, tokenIn } from '@starling-grid/protocol'
import { type Communicator, networkMesh, openCommunicator, type SignallingAccess } from '@starling-grid/volunteer'
import { WebSocketServer, type WebSocket } from 'ws'
import { openPeerNetwork } from './rtc-link.ts'

/** Where a process finds what it needs to join. */
const SEAT_VARIABLE = 'STARLING_SEAT'
/** Bytes of one offer with all candidates of a large machine, several times. */
const MAX_SIGNAL_BYTES = 64 * 1024
/** ms for a link: a group has no relay to fall back on, and its machines may be busy starting ranks */
const LINK_OPEN_MS = 60_000
/** ms that a rank has to end by itself when another failed */
const END_MS = 5000

/** One process's place in a group. */
export interface ProcessSeat {
  readonly access: SignallingAccess
  readonly members: readonly MemberId[]
  /** false: its links are WebRTC alone */
  readonly tcp?: boolean
}

export interface RunningRanks {
  /** of this machine, in the order of their seats; all have opened their groups */
  readonly processes: readonly ChildProcess[]
  /** resolves when all have ended by themselves; rejects with the first one that failed */
  readonly ended: Promise<void>
}

export interface RankProgram {
  /** what each rank runs; it calls `localGroup`, `joinGroup` or the client's `init` */
  readonly file: string
  readonly args?: readonly string[]
  /** 'pipe': who starts the ranks reads what they print; default 'inherit' */
  readonly output?: 'inherit' | 'pipe'
  /** told of each process as soon as it runs */
  readonly onStarted?: (process: ChildProcess, rank: number) => void
  /** the first rank that fails ends the others; absent: they go on */
  readonly isOne?: boolean
}

export interface LocalGroupOptions extends RankProgram, Pick<ProcessSeat, 'tcp'> {
  readonly size: number
}

/**
 * Runs `main` in `size` processes, each with its rank of one group. The program starts itself again for that: what it
 * does before this call happens in every process.
 * @example await localGroup(4, async (group) => console.log(group.rank, await
 * group.allReduce(Float32Array.of(group.rank))))
 */
export async function localGroup(size: number, main: (group: Communicator) => Promise<void>): Promise<void> {
  const group = await joinGroup()
  if (group === undefined)
    return (await startLocalGroup({ size, file: process.argv[1] ?? '', args: process.argv.slice(2) })).ended
  try {
    await main(group)
    await group.barrier()
  } catch (error) {
    console.error(`rank ${group.rank}: ${describeError(error)}`)
    process.exitCode = 1
  }
  await leaveGroup(group)
}

/** The processes of a group of this machine, once all can talk to each other. */
export async function startLocalGroup({ size, tcp = true, ...program }: LocalGroupOptions): Promise<RunningRanks> {
  if (!(Number.isInteger(size) && size >= 1))
    throw new GridError('usage', `expected a group of 1 rank or more, got ${size}`)
  const signalling = await startLocalSignalling()
  const members = Array.from({ length: size }, newMemberId)
  const seats = members.map((self) => ({ access: signalling.access(self), members, tcp }))
  try {
    const ranks = await startRanks(seats, program)
    ranks.ended.finally(() => signalling.stop()).catch(() => {}) // who awaits it is told
    return ranks
  } catch (error) {
    signalling.stop()
    throw error
  }
}

/**
 * The processes of these seats, once all have reached their signalling.
 * @throws GridError 'unsupported' when one ends before
 */
export async function startRanks(seats: readonly ProcessSeat[], program: RankProgram): Promise<RunningRanks> {
  const { file, args = [], output = 'inherit', onStarted, isOne = false } = program
  const processes = seats.map((seat) => {
    const child = fork(file, [...args], {
      execArgv: readsTypeScript(),
      env: { ...process.env, [SEAT_VARIABLE]: JSON.stringify(seat) },
      stdio: ['ignore', output, output, 'ipc'],
    })
    onStarted?.(child, rankOf(seat))
    return child
  })
  const ended = allEnd(processes, { seats, isOne })
  ended.catch(() => {}) // who awaits it is told
  try {
    await Promise.all(processes.map((child, i) => hasJoined(child, rankOf(seats[i]))))
  } catch (error) {
    for (const child of processes) child.kill()
    throw error
  }
  for (const child of processes) if (child.connected) child.send('go')
  return { processes, ended }
}

function rankOf(seat: ProcessSeat | undefined): number {
  return seat === undefined ? -1 : seat.members.indexOf(seat.access.self)
}

/** @throws GridError 'unsupported' with the rank that failed first */
async function allEnd(
  processes: readonly ChildProcess[],
  { seats, isOne }: { readonly seats: readonly ProcessSeat[]; readonly isOne: boolean },
): Promise<void> {
  let failure: GridError | undefined
  const ends = processes.map(async (child, i) => {
    const end = await endOf(child)
    if (end === 0 || failure !== undefined) return
    failure = new GridError('unsupported', `expected all ranks to end with 0, got ${end} of rank ${rankOf(seats[i])}`)
    if (isOne) endTogether(processes)
  })
  await Promise.all(ends)
  if (failure !== undefined) throw failure
}

function endTogether(processes: readonly ChildProcess[]): void {
  for (const child of processes) child.kill('SIGTERM')
  // A rank that hangs in a native call cannot handle SIGTERM.
  setTimeout(() => {
    for (const child of processes) child.kill('SIGKILL')
  }, END_MS).unref()
}

async function hasJoined(child: ChildProcess, rank: number): Promise<void> {
  const joined = once(child, 'message').then(() => undefined)
  const end = await Promise.race([joined, endOf(child)])
  if (end !== undefined)
    throw new GridError('unsupported', `expected rank ${rank} to join its group, got its end with ${end}`)
}

/** The place that this process was started for; undefined when it was started by itself. */
export function ownSeat(): ProcessSeat | undefined {
  const text = process.env[SEAT_VARIABLE]
  return text === undefined ? undefined : (JSON.parse(text) as ProcessSeat) // from our own parent
}

/** The group that this process was started for; undefined when it was started by itself. */
export async function joinGroup(): Promise<Communicator | undefined> {
  const seat = ownSeat()
  if (seat === undefined) return undefined
  const { access, members, tcp = true } = seat
  // Ends with the process that started it, however that ends.
  process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'))
  const network = await openPeerNetwork({ linkOpenMs: LINK_OPEN_MS, ...access }, tcp && {})
  const group = openCommunicator(networkMesh(network, members, members.indexOf(access.self)))
  const go = once(process, 'message')
  process.send?.('ready')
  await go
  process.channel?.unref() // a program that has closed its group may end
  return group
}

/** Lets the process end by itself. */
export async function leaveGroup(group: Communicator): Promise<void> {
  await group.close()
  process.removeAllListeners('disconnect')
  process.disconnect()
}

export interface LocalSignalling {
  access(self: MemberId): SignallingAccess
  stop(): void
}

/** A message of one member to another. */
export interface LocalSignal {
  readonly type: string
  readonly src: MemberId
  readonly payload?: unknown
}

/**
 * The PeerJS protocol between processes with the token; on this machine only. `change`: what of a message is passed on;
 * absent: all of each.
 */
export async function startLocalSignalling(
  change: (signal: LocalSignal) => LocalSignal | undefined = (signal) => signal,
): Promise<LocalSignalling> {
  const token = newMemberId()
  const clients = new Map<MemberId, WebSocket>()
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, maxPayload: MAX_SIGNAL_BYTES })
  server.on('connection', (socket, { url, headers }) => {
    const id = memberId(new URL(url ?? '', 'ws://localhost').searchParams.get('id') ?? '')
    if (tokenIn(headers['sec-websocket-protocol']) !== token) return socket.terminate()
    clients.set(id, socket)
    socket.on('error', () => socket.terminate())
    socket.on('message', (data) => forward(clients, { src: id, text: data.toString(), change }))
    socket.send(JSON.stringify({ type: 'OPEN' }))
  })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    access: (self) => ({ url: `http://127.0.0.1:${port}`, path: '/', self, token, iceServers: [] }),
    stop() {
      for (const socket of clients.values()) socket.terminate()
      server.close()
    },
  }
}

interface Forwarding {
  readonly src: MemberId
  readonly text: string
  readonly change: (signal: LocalSignal) => LocalSignal | undefined
}

function forward(clients: ReadonlyMap<MemberId, WebSocket>, { src, text, change }: Forwarding): void {
  const { type, dst, payload } = JSON.parse(text) as { type: string; dst?: MemberId; payload?: unknown }
  if (dst === undefined) return // a heartbeat
  const destination = clients.get(dst)
  if (destination?.readyState === destination?.OPEN && destination !== undefined) {
    const passed = change({ type, src, payload })
    if (passed !== undefined) destination.send(JSON.stringify(passed))
  } else if (type === 'OFFER') clients.get(src)?.send(JSON.stringify({ type: 'EXPIRE', src: dst }))
  else if (type === 'KNOCK') clients.get(src)?.send(JSON.stringify({ type: 'DOOR', src: dst }))
}

async function endOf(child: ChildProcess): Promise<number | string> {
  const [code, signal] = (await once(child, 'exit')) as [number | null, string | null]
  return code ?? signal ?? 'nothing'
}

/** What Node has to be told so that a program, and what it imports of ours, may be TypeScript. */
function readsTypeScript(): string[] {
  const told = [...process.execArgv, process.env['NODE_OPTIONS'] ?? ''].some((option) => option.includes('tsx'))
  return told ? process.execArgv : [...process.execArgv, '--import', import.meta.resolve('tsx')]
}
