// Groups of processes on this machine, for tests, benchmarks and trying collectives. Starts the processes, introduces
// them to each other, and gives each its Communicator. The links are the same WebRTC links as between volunteers.
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { describeError, GridError, type MemberId, memberId, newMemberId, tokenIn } from '@starling-grid/protocol'
import { type Communicator, networkMesh, openCommunicator, type SignallingAccess } from '@starling-grid/volunteer'
import { WebSocketServer, type WebSocket } from 'ws'
import { openPeerNetwork } from './rtc-link.ts'

/** Where a process finds what it needs to join. */
const SEAT_VARIABLE = 'STARLING_LOCAL_GROUP'
/** Bytes of one offer with all candidates of a large machine, several times. */
const MAX_SIGNAL_BYTES = 64 * 1024

/** One process's place in a group. */
export interface LocalSeat {
  readonly access: SignallingAccess
  readonly members: readonly MemberId[]
}

export interface LocalGroup {
  /** by rank; all have opened their groups */
  readonly processes: readonly ChildProcess[]
  /** resolves when all have ended by themselves; rejects with the first rank that failed */
  readonly ended: Promise<void>
}

export interface LocalGroupOptions {
  readonly size: number
  /** the program that each rank runs; it calls `localGroup` or `joinLocalGroup` */
  readonly file: string
  readonly args?: readonly string[]
}

/**
 * Runs `main` in `size` processes, each with its rank of one group. The program starts itself again for that: what it
 * does before this call happens in every process.
 * @example await localGroup(4, async (group) => console.log(group.rank, await
 * group.allReduce(Float32Array.of(group.rank))))
 */
export async function localGroup(size: number, main: (group: Communicator) => Promise<void>): Promise<void> {
  const group = await joinLocalGroup()
  if (group === undefined)
    return (await startLocalGroup({ size, file: process.argv[1] ?? '', args: process.argv.slice(2) })).ended
  try {
    await main(group)
    await group.barrier()
  } catch (error) {
    console.error(`rank ${group.rank}: ${describeError(error)}`)
    process.exitCode = 1
  }
  await leaveLocalGroup(group)
}

/** The processes of a group, once all can talk to each other. */
export async function startLocalGroup({ size, file, args = [] }: LocalGroupOptions): Promise<LocalGroup> {
  if (!(Number.isInteger(size) && size >= 1))
    throw new GridError('usage', `expected a group of 1 rank or more, got ${size}`)
  const signalling = await startLocalSignalling()
  const members = Array.from({ length: size }, newMemberId)
  const processes = members.map((self) => {
    const seat: LocalSeat = { access: signalling.access(self), members }
    return fork(file, [...args], {
      execArgv: readsTypeScript(file),
      env: { ...process.env, [SEAT_VARIABLE]: JSON.stringify(seat) },
    })
  })
  const ends = Promise.all(processes.map(endOf)).finally(() => signalling.stop())
  const ended = ends.then((all) => {
    const failed = all.findIndex((end) => end !== 0)
    if (failed >= 0)
      throw new GridError('unsupported', `expected all ranks to end with 0, got ${all[failed]} of rank ${failed}`)
  })
  ended.catch(() => {}) // who awaits it is told
  try {
    await Promise.all(processes.map(hasJoined))
  } catch (error) {
    for (const child of processes) child.kill()
    throw error
  }
  for (const child of processes) child.send('go')
  return { processes, ended }
}

async function hasJoined(child: ChildProcess, rank: number): Promise<void> {
  const joined = once(child, 'message').then(() => undefined)
  const end = await Promise.race([joined, endOf(child)])
  if (end !== undefined)
    throw new GridError('unsupported', `expected rank ${rank} to join its group, got its end with ${end}`)
}

/** The place that this process was started for; undefined when it was started by itself. */
export function localSeat(): LocalSeat | undefined {
  const text = process.env[SEAT_VARIABLE]
  return text === undefined ? undefined : (JSON.parse(text) as LocalSeat) // from our own parent
}

/** The group that this process was started for; undefined when it was started by itself. */
export async function joinLocalGroup(): Promise<Communicator | undefined> {
  const seat = localSeat()
  if (seat === undefined) return undefined
  const { access, members } = seat
  // Ends with the process that started it, however that ends.
  process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'))
  const network = await openPeerNetwork(access)
  const group = openCommunicator(networkMesh(network, members, members.indexOf(access.self)))
  const go = once(process, 'message')
  process.send?.('ready')
  await go
  return group
}

/** Lets the process end by itself. */
export async function leaveLocalGroup(group: Communicator): Promise<void> {
  await group.close()
  process.removeAllListeners('disconnect')
  process.disconnect()
}

export interface LocalSignalling {
  access(self: MemberId): SignallingAccess
  stop(): void
}

/** The PeerJS protocol between processes with the token; on this machine only. */
export async function startLocalSignalling(): Promise<LocalSignalling> {
  const token = newMemberId()
  const clients = new Map<MemberId, WebSocket>()
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, maxPayload: MAX_SIGNAL_BYTES })
  server.on('connection', (socket, { url, headers }) => {
    const id = memberId(new URL(url ?? '', 'ws://localhost').searchParams.get('id') ?? '')
    if (tokenIn(headers['sec-websocket-protocol']) !== token) return socket.terminate()
    clients.set(id, socket)
    socket.on('error', () => socket.terminate())
    socket.on('message', (data) => forward(clients, id, data.toString()))
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

function forward(clients: ReadonlyMap<MemberId, WebSocket>, src: MemberId, text: string): void {
  const { type, dst, payload } = JSON.parse(text) as { type: string; dst?: MemberId; payload?: unknown }
  if (dst === undefined) return // a heartbeat
  const destination = clients.get(dst)
  if (destination?.readyState === destination?.OPEN && destination !== undefined)
    destination.send(JSON.stringify({ type, src, payload }))
  else if (type === 'OFFER') clients.get(src)?.send(JSON.stringify({ type: 'EXPIRE', src: dst }))
}

async function endOf(child: ChildProcess): Promise<number | string> {
  const [code, signal] = (await once(child, 'exit')) as [number | null, string | null]
  return code ?? signal ?? 'nothing'
}

/** What Node has to be told so that it reads this file; nothing when this process was told already. */
function readsTypeScript(file: string): string[] {
  const told = [...process.execArgv, process.env['NODE_OPTIONS'] ?? ''].some((option) => option.includes('tsx'))
  return told || !file.endsWith('.ts')
    ? process.execArgv
    : [...process.execArgv, '--import', import.meta.resolve('tsx')]
}
