// One rank of the all-reduce benchmarks, in a process or in a tab. Reduces, or moves as many bytes over links of its
// own without looking at them. Independent of the process that gives it orders.
import { checksum, FRAME_HEADER_BYTES, type MemberId } from '@starling-grid/protocol'
import type { Communicator, PeerLink } from '@starling-grid/volunteer'
import { CHUNK_BYTES, type Encoding, type Mesh } from '@starling-grid/volunteer/collectives'
import { type EncodingName, startEncoding } from './encodings.ts'
import type { MoveBytes } from './raw-tls.ts'
import { zeroChunk } from './zero-chunk.ts'

export interface RankCommand {
  /**
   * check: all-reduce once and compare with what it must give. raw: only send to one neighbour and receive from the
   * other; tls: the same without our links
   */
  readonly type: 'check' | 'reduce' | 'raw' | 'tls' | 'leave'
  readonly numbers: number
  readonly encoding: EncodingName
}

export interface RankAnswer {
  readonly milliseconds: number
  /** of all threads of the process; 0 where that cannot be known */
  readonly cpuMilliseconds: number
}

export interface RankParts {
  readonly group: Communicator
  /** of links beside those of the group, between the same ranks */
  readonly rawMesh: Mesh
  /** ms of work that this rank's process has done */
  readonly cpuMs: () => number
  /** absent: tabs have no such sockets */
  readonly moveTls?: MoveBytes
}

export type Rank = (order: RankCommand) => Promise<RankAnswer>

/** Bytes of a raw message: the library's frame. */
const RAW_BYTES = CHUNK_BYTES + FRAME_HEADER_BYTES
/** after which the numbers to be summed repeat */
const PERIOD = 100
/** ms for the raw links to open */
const OPEN_MS = 30_000

/** Names for the members' second links. */
export function rawMembers(members: readonly MemberId[]): MemberId[] {
  return members.map((member) => [...member].reverse().join('') as MemberId)
}

/** Once all raw links are open. */
export async function startRank({ group, rawMesh, cpuMs, moveTls }: RankParts): Promise<Rank> {
  rawMesh.listen(() => {})
  await group.barrier()
  const moveRaw = await openRaw(rawMesh)
  const encodings = new Map<string, Encoding>()
  let [input, result] = [new Float32Array(0), new Float32Array(0)]
  return async ({ type, numbers, encoding: name }) => {
    if (type === 'leave') return { milliseconds: 0, cpuMilliseconds: 0 }
    const encoding = encodings.get(`${name} ${numbers}`) ?? startEncoding(name, numbers)
    encodings.set(`${name} ${numbers}`, encoding)
    if (type === 'check') await check(group, numbers, encoding)
    if (result.length !== numbers) [input, result] = [valuesOf(group.rank, numbers), new Float32Array(numbers)]
    await group.barrier()
    const [begin, cpu] = [performance.now(), cpuMs()]
    const bytes = (2 * (group.size - 1) * 4 * numbers) / group.size
    if (type === 'raw') await moveRaw(bytes)
    else if (type === 'tls') await moveTls?.(new Uint8Array(input.buffer), bytes)
    else await group.allReduce(input, { into: result, encoding })
    return { milliseconds: performance.now() - begin, cpuMilliseconds: cpuMs() - cpu }
  }
}

function valueOf(rank: number, i: number): number {
  return ((i + 7 * rank) % PERIOD) - PERIOD / 2
}

function valuesOf(rank: number, numbers: number): Float32Array<ArrayBuffer> {
  const values = new Float32Array(numbers)
  for (let i = 0; i < numbers; i++) values[i] = valueOf(rank, i)
  return values
}

/** Correctness first: small integers, whose sums are exact; with encodings, equal bytes on all ranks. */
async function check(group: Communicator, numbers: number, encoding: Encoding): Promise<void> {
  const sum = await group.allReduce(valuesOf(group.rank, numbers), { encoding })
  const ranks = Array.from({ length: group.size }, (_, rank) => rank)
  const expected = Array.from({ length: PERIOD }, (_, i) => ranks.reduce((total, rank) => total + valueOf(rank, i), 0))
  const wrong = encoding.type === 'f32' ? sum.findIndex((value, i) => value !== expected[i % PERIOD]) : -1
  if (wrong >= 0)
    throw new Error(`number ${wrong} is ${sum[wrong]}, expected ${expected[wrong % PERIOD]}: nothing to time`)
  const digests = await group.allGather(Int32Array.of(checksum(new Uint8Array(sum.buffer)) | 0))
  if (digests.some((digest) => digest !== digests[0]))
    throw new Error(`ranks hold different bytes with ${encoding.type}: nothing to time`)
}

/** As many bytes to the successor as come from the predecessor, neither copied nor looked at here. */
async function openRaw(mesh: Mesh): Promise<(bytes: number) => Promise<void>> {
  const { rank, size } = mesh
  const connect = (peer: number): Promise<PeerLink> => mesh.connect(peer, AbortSignal.timeout(OPEN_MS))
  const [successor, predecessor] = await Promise.all([connect((rank + 1) % size), connect((rank + size - 1) % size)])
  /** a frame by its header, which tells streams its length; what follows is of no interest */
  const message = zeroChunk()
  let [due, came] = [0, 0]
  let wake: () => void = () => {}
  predecessor.onFrame = () => {
    came++
    wake()
  }
  return async (bytes) => {
    const messages = Math.ceil(bytes / RAW_BYTES)
    due += messages
    for (let i = 0; i < messages; i++) await successor.send(message)
    while (came < due)
      await new Promise<void>((resolve) => {
        wake = resolve
      })
  }
}
