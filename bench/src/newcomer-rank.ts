// One of two processes of the newcomer's benchmark: rank 0 holds a state and serves it, rank 1 fetches it. Its parent
// decides when.
import { joinGroup, leaveGroup, ownSeat, openPeerNetwork } from '@starling-grid/client-node'
import {
  FRAME_HEADER_BYTES,
  FRAME_PAYLOAD_BYTES,
  type Frame,
  type MemberId,
  random32,
  versionId,
  systemClock,
} from '@starling-grid/protocol'
import { networkMesh } from '@starling-grid/volunteer'
import { LinkSet, StateFetch, StateServer, type Wanted } from '@starling-grid/volunteer/testing'
import { rawMembers } from './rank.ts'

export interface NewcomerOrder {
  readonly type: 'fetch' | 'raw' | 'leave'
  readonly bytes: number
  /** another one each time: nothing of the last fetch is of use */
  readonly version: number
}

export type NewcomerAnswer = { readonly milliseconds: number } | { readonly error: string }

/** of a raw message: what carries a state's chunks */
const RAW_BYTES = FRAME_PAYLOAD_BYTES + FRAME_HEADER_BYTES
const OPEN_MS = 30_000
/** of everything that is asked for here */
const GENERATION = 1

const seat = ownSeat()
const group = await joinGroup()
if (group === undefined || seat === undefined) throw new Error('internal: started without a group')
const { rank } = group
const holds = rank === 0

const rawNames = rawMembers(seat.members)
const rawMesh = networkMesh(
  await openPeerNetwork({ ...seat.access, self: rawNames[rank] ?? seat.access.self }),
  rawNames,
  rank,
)
rawMesh.listen(() => {})
/** Half of one name and half of the other: a third name for each. */
const names = seat.members.map((member, i) => (member.slice(0, 16) + (rawNames[i] ?? member).slice(16)) as MemberId)
const [self = seat.access.self, peer = seat.access.self] = holds ? names : [...names].reverse()
const links = new LinkSet(
  await openPeerNetwork({ ...seat.access, self }),
  () => Promise.reject(new Error('internal: no relay here')),
  {
    onFrame: (from, frame) => (holds ? server.serve(from, frame) : fetch.accept(from, frame)),
    onLost: (member) => fetch.lost(member),
  },
  { clock: systemClock },
)
links.expect([peer])
const send = (to: MemberId, frame: Frame): void => links.send(to, frame)
let state = new Uint8Array(0)
const server = new StateServer({
  clock: systemClock,
  send,
  mayServe: () => true,
  promised: () => GENERATION,
  bytesOf: () => state,
})
const fetch = new StateFetch({
  clock: systemClock,
  send,
  reach: (member, signal) => links.ensure(member, 'dial', signal),
})

await group.barrier()
const raw = await rawMesh.connect(1 - rank, AbortSignal.timeout(OPEN_MS))
let [due, came] = [0, 0]
let wake: () => void = () => {}
raw.onFrame = () => {
  came++
  wake()
}

process.on('message', async (order: NewcomerOrder) => {
  const answer = await obey(order).catch((error: Error): NewcomerAnswer => ({ error: error.stack ?? error.message }))
  process.send?.(answer)
  if (order.type !== 'leave') return
  rawMesh.stop()
  links.close()
  await leaveGroup(group ?? impossible())
  process.exit()
})
process.send?.({ milliseconds: 0 } satisfies NewcomerAnswer)

async function obey({ type, bytes, version }: NewcomerOrder): Promise<NewcomerAnswer> {
  if (type === 'leave') return { milliseconds: 0 }
  if (holds && state.length !== bytes) state = stateOf(bytes)
  await group?.barrier()
  const begin = performance.now()
  await (type === 'raw' ? moveRaw(bytes) : fetchState(bytes, version))
  const milliseconds = performance.now() - begin
  await group?.barrier() // the source answers while it waits here
  return { milliseconds: holds ? 0 : milliseconds }
}

/** The fetch compares every chunk with its hash: what it gives is the state. */
async function fetchState(bytes: number, v: number): Promise<void> {
  if (holds) return
  const wanted: Wanted = {
    kind: 'state',
    version: { v, id: versionId(String(v).padStart(64, '0')) },
    generation: GENERATION,
    maxBytes: bytes,
  }
  const got = await fetch.fetch(wanted, [peer], AbortSignal.timeout(60_000))
  if (got.byteLength !== bytes) throw new Error(`${got.byteLength} of ${bytes} bytes came: nothing to time`)
}

async function moveRaw(bytes: number): Promise<void> {
  const messages = Math.ceil(bytes / RAW_BYTES)
  if (holds)
    for (let i = 0; i < messages; i++)
      await raw.send(new Uint8Array(state.buffer, (i * RAW_BYTES) % (state.byteLength - RAW_BYTES), RAW_BYTES))
  else
    for (due += messages; came < due;)
      await new Promise<void>((resolve) => {
        wake = resolve
      })
}

function stateOf(bytes: number): Uint8Array<ArrayBuffer> {
  const random = random32(1)
  return new Uint8Array(Uint32Array.from({ length: Math.ceil(bytes / 4) }, () => random()).buffer, 0, bytes)
}

function impossible(): never {
  throw new Error('internal: started without a group')
}
