// Binary frames between volunteers: byte layout, packing, unpacking. The header is checked before memory is allocated.
//
//   offset  0  u32 magic "STRL"
//           4  u32 type (FRAME_TYPES)
//           8  u32 generation
//          12  u32 step     (heartbeat: its number on this link)
//          16  u32 bucket   (reduce: its index; manifest: rank of its author; chunk, hashes: length of the whole)
//          20  u32 hop      (reduce and manifest: hops travelled; heartbeat: 0 asks, 1 answers; others: 0)
//          24  u32 offset   (reduce: first element inside the bucket; chunk: first byte; others: 0)
//          28  u32 length   (payload bytes)
//          32  u32 checksum (of the payload, see `checksum`)
//          36  payload
// All little-endian.
import { GridError } from './errors.ts'
import { MAX_FRAME_PAYLOAD_BYTES } from './limits.ts'

const MAGIC = 0x4c525453
export const FRAME_HEADER_BYTES = 36
/** where the header says how many bytes of payload follow */
const LENGTH_AT = 28

/** What a frame carries. */
export const FRAME_TYPES = {
  /** none; shows that an idle link is alive */
  heartbeat: 1,
  /** public key (32 bytes), salt (16) and signature (64) on a direct link; the first frame of each end of a link */
  greeting: 2,
  /** reduce-scatter: partial sums of one chunk */
  partial: 3,
  /** all-gather: final sums of one chunk */
  reduced: 4,
  /** JSON: one member's contribution of a step */
  manifest: 5,
  /** JSON: request for a version or a reduced gradient */
  fetch: 6,
  /** answer to `fetch`: consecutive bytes */
  chunk: 7,
  /** answer to `fetch` that was refused: JSON `{ code, message }` */
  refusal: 8,
  /** answer to `fetch`: SHA-256 of every chunk, 32 bytes each */
  hashes: 9,
  /** SHA-256 of a shard of the base; answered with `chunk` frames, empty: not yet */
  shard: 10,
} as const
export type FrameType = keyof typeof FRAME_TYPES

export interface Frame {
  readonly type: FrameType
  readonly generation: number
  readonly step: number
  readonly bucket: number
  readonly hop: number
  readonly offset: number
  readonly payload: Uint8Array
}

const TYPE_NAMES = new Map<number, FrameType>(
  Object.entries(FRAME_TYPES).map(([name, code]) => [code, name as FrameType]),
)

/** Header and payload in one new buffer, ready to send. */
export function packFrame(frame: Frame): Uint8Array<ArrayBuffer> {
  return writeFrame(frame, new Uint8Array(FRAME_HEADER_BYTES + frame.payload.byteLength))
}

/**
 * Packs frames one after the other into the same memory: allocating a buffer costs more than the rest of packing.
 */
export class FramePacker {
  #memory = new Uint8Array(0)

  /** Valid until the next call. */
  pack(frame: Frame): Uint8Array<ArrayBuffer> {
    const length = FRAME_HEADER_BYTES + frame.payload.byteLength
    if (this.#memory.byteLength < length) this.#memory = new Uint8Array(length)
    return writeFrame(frame, this.#memory.subarray(0, length))
  }
}

/** `bytes` is as long as the frame. */
function writeFrame(frame: Frame, bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  bytes.set(frame.payload, FRAME_HEADER_BYTES)
  const header = new DataView(bytes.buffer, bytes.byteOffset, FRAME_HEADER_BYTES)
  const fields = [MAGIC, FRAME_TYPES[frame.type], frame.generation, frame.step, frame.bucket, frame.hop, frame.offset]
  fields.push(frame.payload.byteLength, checksum(bytes.subarray(FRAME_HEADER_BYTES)))
  fields.forEach((value, i) => header.setUint32(4 * i, value, true))
  return bytes
}

/**
 * Bytes of a frame, told by its header alone: what carries frames in a stream cuts it so.
 * @throws GridError 'message-malformed', or 'message-too-large' above `most` bytes
 */
export function frameBytes(header: Uint8Array, most: number): number {
  const view = new DataView(header.buffer, header.byteOffset, FRAME_HEADER_BYTES)
  if (view.getUint32(0, true) !== MAGIC) throw malformed('expected a frame that starts with "STRL"')
  const bytes = FRAME_HEADER_BYTES + view.getUint32(LENGTH_AT, true)
  if (bytes <= most) return bytes
  throw new GridError('message-too-large', `expected a frame of at most ${most} bytes, got ${bytes}`)
}

/**
 * A typed frame over the given bytes (the payload is a view, not a copy).
 * @throws GridError 'message-malformed', 'message-too-large' or 'checksum'
 */
export function unpackFrame(bytes: Uint8Array): Frame {
  if (bytes.byteLength < FRAME_HEADER_BYTES)
    throw malformed(`expected a frame of at least ${FRAME_HEADER_BYTES} bytes, got ${bytes.byteLength}`)
  if (bytes.byteLength > FRAME_HEADER_BYTES + MAX_FRAME_PAYLOAD_BYTES)
    throw new GridError(
      'message-too-large',
      `expected at most ${MAX_FRAME_PAYLOAD_BYTES} payload bytes, got ${bytes.byteLength - FRAME_HEADER_BYTES}`,
    )
  const header = new DataView(bytes.buffer, bytes.byteOffset, FRAME_HEADER_BYTES)
  const field = (i: number): number => header.getUint32(4 * i, true)
  if (field(0) !== MAGIC) throw malformed('expected a frame that starts with "STRL"')
  const type = TYPE_NAMES.get(field(1))
  if (type === undefined) throw malformed(`expected a frame type of 1 to ${TYPE_NAMES.size}, got ${field(1)}`)
  const payload = bytes.subarray(FRAME_HEADER_BYTES)
  if (field(7) !== payload.byteLength)
    throw malformed(`expected ${field(7)} payload bytes as the header states, got ${payload.byteLength}`)
  if (field(8) !== checksum(payload))
    throw new GridError('checksum', `expected a ${type} frame with the checksum ${field(8)}, got ${checksum(payload)}`)
  return { type, generation: field(2), step: field(3), bucket: field(4), hop: field(5), offset: field(6), payload }
}

function malformed(message: string): GridError {
  return new GridError('message-malformed', message)
}

/**
 * Order-sensitive 32-bit sum (Fletcher's scheme over 32-bit words, then the tail). Finds swapped, lost and altered
 * bytes of a buggy or hostile sender; DTLS already covers the wire.
 */
export function checksum(bytes: Uint8Array): number {
  const whole = bytes.byteLength >> 2
  const words = wordsOf(bytes, whole)
  let a = 1
  let b = bytes.byteLength | 0
  let i = 0
  // Four words per iteration halve the time. Partial sums shorten the dependency chain from one `a` to the next.
  for (const end = whole & ~3; i < end; i += 4) {
    const s = (a + (words[i] ?? 0)) | 0
    const t = (s + (words[i + 1] ?? 0)) | 0
    const u = (t + (words[i + 2] ?? 0)) | 0
    a = (u + (words[i + 3] ?? 0)) | 0
    b = (((b + s) | 0) + ((t + u) | 0) + a) | 0
  }
  for (; i < whole; i++) b = (b + (a = (a + (words[i] ?? 0)) | 0)) | 0
  for (let k = 4 * whole; k < bytes.byteLength; k++) b = (b + (a = (a + (bytes[k] ?? 0)) | 0)) | 0
  return (a ^ Math.imul(b, 0x9e3779b1)) >>> 0
}

/**
 * The whole 32-bit words of some bytes; all machines that WebGPU runs on are little-endian. Unaligned bytes are
 * copied.
 */
function wordsOf(bytes: Uint8Array, whole: number): Int32Array {
  return bytes.byteOffset % 4 === 0
    ? new Int32Array(bytes.buffer, bytes.byteOffset, whole)
    : new Int32Array(bytes.slice(0, 4 * whole).buffer)
}
