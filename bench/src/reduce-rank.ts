// One rank of the all-reduce benchmarks: reduces, or moves as many bytes over links of its own without looking at them.
import { joinLocalGroup, leaveLocalGroup, localSeat, openPeerNetwork } from '@starling-grid/client-node'
import { checksum, FRAME_HEADER_BYTES, memberId } from '@starling-grid/protocol'
import { CHUNK_BYTES, type Encoding, networkMesh, type PeerLink } from '@starling-grid/volunteer'
import { type EncodingName, startEncoding } from './encodings.ts'
import type { RankAnswer, RankOrder } from './rank-orders.ts'

/** Bytes of a raw message: the library's frame. */
const RAW_BYTES = CHUNK_BYTES + FRAME_HEADER_BYTES
/** after which the numbers to be summed repeat */
const PERIOD = 100

const NOTHING: RankAnswer = { milliseconds: 0, cpuMilliseconds: 0 }

const seat = localSeat()
const group = await joinLocalGroup()
if (group === undefined || seat === undefined) throw new Error('internal: started without a group')
const { rank, size } = group

const { members } = seat
/** Links beside those of the group, between the same processes. */
const others = members.map((member) => memberId([...member].reverse().join('')))
const network = await openPeerNetwork({ ...seat.access, self: others[rank] ?? seat.access.self })
const mesh = networkMesh(network, others, rank)
mesh.listen(() => {})
await group.barrier()
const connect = (peer: number): Promise<PeerLink> => mesh.connect(peer, AbortSignal.timeout(30_000))
const [successor, predecessor] = await Promise.all([connect((rank + 1) % size), connect((rank + size - 1) % size)])

/** raw messages: how many are due, how many came */
let [due, came] = [0, 0]
let wake: () => void = () => {}
predecessor.onFrame = () => {
  came++
  wake()
}

const encodings = new Map<string, Encoding>()
let input = new Float32Array(0)
let result = new Float32Array(0)

process.on('message', async (order: RankOrder) => {
  const answer = await obey(order).catch((error: Error): RankAnswer => ({ ...NOTHING, error: error.stack ?? error.message }))
  process.send?.(answer)
  if (order.type !== 'leave') return
  mesh.stop()
  await leaveLocalGroup(group ?? impossible())
})

process.send?.(NOTHING)

async function obey({ type, numbers, encoding }: RankOrder): Promise<RankAnswer> {
  if (type === 'leave') return NOTHING
  if (type === 'check') await check(numbers, encoding)
  if (result.length !== numbers) [input, result] = [valuesOf(numbers), new Float32Array(numbers)]
  const bytes = (2 * (size - 1) * 4 * numbers) / size
  const run = type === 'raw' ? () => moveRaw(bytes) : () => group?.allReduce(input, { into: result, encoding: encodingOf(encoding, numbers) })
  await group?.barrier()
  const [begin, cpu] = [performance.now(), process.cpuUsage()]
  await run()
  const { user, system } = process.cpuUsage(cpu)
  return { milliseconds: performance.now() - begin, cpuMilliseconds: (user + system) / 1000 }
}

function valueOf(one: number, i: number): number {
  return ((i + 7 * one) % PERIOD) - PERIOD / 2
}

function valuesOf(numbers: number): Float32Array<ArrayBuffer> {
  const values = new Float32Array(numbers)
  for (let i = 0; i < numbers; i++) values[i] = valueOf(rank, i)
  return values
}

/** Correctness first: small integers, whose sums are exact; with encodings, equal bytes on all ranks. */
async function check(numbers: number, encoding: EncodingName): Promise<void> {
  const values = valuesOf(numbers)
  const sum = (await group?.allReduce(values, { encoding: encodingOf(encoding, numbers) })) ?? impossible()
  const expected = Array.from({ length: PERIOD }, (_, i) => members.reduce((total, _, one) => total + valueOf(one, i), 0))
  const wrong = encoding === 'f32' ? sum.findIndex((value, i) => value !== expected[i % PERIOD]) : -1
  if (wrong >= 0) throw new Error(`number ${wrong} is ${sum[wrong]}, expected ${expected[wrong % PERIOD]}: nothing to time`)
  const digests = (await group?.allGather(Int32Array.of(checksum(new Uint8Array(sum.buffer)) | 0))) ?? impossible()
  if (digests.some((digest) => digest !== digests[0])) throw new Error(`ranks hold different bytes with ${encoding}: nothing to time`)
}

/** As many bytes of the vector to the successor as come from the predecessor, neither copied nor looked at here. */
async function moveRaw(bytes: number): Promise<void> {
  const messages = Math.ceil(bytes / RAW_BYTES)
  due += messages
  for (let i = 0; i < messages; i++) await successor.send(new Uint8Array(input.buffer, (i * RAW_BYTES) % (input.byteLength - RAW_BYTES), RAW_BYTES))
  while (came < due) await new Promise<void>((resolve) => (wake = resolve))
}

function encodingOf(name: EncodingName, numbers: number): Encoding {
  const known = encodings.get(`${name} ${numbers}`) ?? startEncoding(name, numbers)
  encodings.set(`${name} ${numbers}`, known)
  return known
}

function impossible(): never {
  throw new Error('internal: started without a group')
}
