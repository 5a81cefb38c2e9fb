// Faults in what a volunteer sends to others: its n-th frame of one type meets one. All links, also relayed ones.
import {
  FRAME_HEADER_BYTES,
  FRAME_TYPES,
  type Frame,
  type FrameType,
  packFrame,
  unpackFrame,
} from '@starling-grid/protocol'
import type { PeerLink, PeerNetwork, RelaySocket, VolunteerHost } from '@starling-grid/volunteer'

type Bytes = Uint8Array<ArrayBuffer>

interface SentFrame {
  /** how many of its type left before, and this one */
  readonly n: number
  readonly frame: Bytes
  readonly link: Pick<PeerLink, 'close'>
}

interface FrameFault {
  /** frames that it counts, and that meet it */
  readonly type: FrameType
  /** What leaves instead: other frames, more of them, or none. */
  readonly change: (sending: SentFrame, number: number) => readonly Bytes[]
}

/**
 * Some frames in a row: each costs a ballot, so the fault is seen also when the first meets a generation that is over.
 */
const IN_A_ROW = 3
/** Far above what the rate of any link hides: frames in one burst of a flood. */
const FLOOD_FRAMES = 20_000

const FAULTS: Readonly<Record<string, FrameFault>> = {
  /** killed in the middle of a reduce-scatter, or of an all-gather, like a power cut */
  'die-at-partial': { type: 'partial', change: dieAt },
  'die-at-reduced': { type: 'reduced', change: dieAt },
  /** the first NUMBER reduces break, also past the coordinator, then the links are good */
  'break-links': {
    type: 'partial',
    change: ({ n, frame, link }, number) => (n > number ? [frame] : (link.close('fault'), [])),
  },
  /** partial sums that are not numbers */
  'send-nan': {
    type: 'partial',
    change: inARow((frame) => [withPayload(frame, (payload) => new Float32Array(payload.buffer).fill(Number.NaN))]),
  },
  /** partial sums that are finite and far larger than anybody's; only owners in a direct exchange see whose they are */
  'send-huge': {
    type: 'partial',
    change: inARow((frame) => [withPayload(frame, (payload) => new Float32Array(payload.buffer).fill(1e20))]),
  },
  /** bytes that are no frame */
  'send-garbage': {
    type: 'partial',
    change: ({ n, frame }, number) => [n === number ? new Uint8Array(frame.byteLength).fill(0x5a) : frame],
  },
  /** a header that promises more than follows */
  'send-truncated': { type: 'partial', change: ({ n, frame }, number) => [n === number ? frame.slice(0, -4) : frame] },
  /** a chunk of another length than the plan has */
  'send-short': {
    type: 'partial',
    change: inARow((frame) => [withFrame(frame, ({ payload }) => ({ payload: payload.subarray(4) }))]),
  },
  /** payload and checksum do not belong together */
  'send-flipped-bit': { type: 'partial', change: ({ n, frame }, number) => [n === number ? flipped(frame) : frame] },
  /** beside what is due, copies that name the generation before: they cost no step, so they continue */
  'send-old': {
    type: 'partial',
    change: ({ n, frame }, number) =>
      n < number ? [frame] : [withFrame(frame, ({ generation }) => ({ generation: generation - 1 })), frame],
  },
  /** the right shape, checksum and finite, and one bit of it wrong: only digests can tell */
  'send-wrong-sum': {
    type: 'reduced',
    change: ({ n, frame }, number) => [
      n === number
        ? withPayload(frame, (payload) => {
            payload[0] = (payload[0] ?? 0) ^ 1
          })
        : frame,
    ],
  },
  /** repeats of one frame, as fast as the link takes them */
  'flood-frames': {
    type: 'partial',
    change: ({ n, frame }, number) =>
      n === number ? new Array<Bytes>(FLOOD_FRAMES).fill(frame).map((one) => one.slice()) : [frame],
  },
}

export const FRAME_FAULTS: readonly string[] = Object.keys(FAULTS)

/** The host with this fault in its links; undefined when there is no such fault. */
export function withFrameFault(host: VolunteerHost, kind: string, number: number): VolunteerHost | undefined {
  const fault = Object.hasOwn(FAULTS, kind) ? FAULTS[kind] : undefined
  if (fault === undefined) return undefined
  let n = 0
  const change: Change = (frame, link) =>
    isOf(fault.type, frame) ? fault.change({ n: ++n, frame, link }, number) : [frame]
  return {
    ...host,
    openPeerNetwork: async (access) => faultyNetwork(await host.openPeerNetwork(access), change),
    dialRelay: async (path, token) => faultySocket(await host.dialRelay(path, token), change),
  }
}

function dieAt({ n, frame }: SentFrame, number: number): Bytes[] {
  if (n === number) process.kill(process.pid, 'SIGKILL')
  return [frame]
}

function inARow(change: (frame: Bytes) => Bytes[]): FrameFault['change'] {
  return ({ n, frame }, number) => (n < number || n >= number + IN_A_ROW ? [frame] : change(frame))
}

function withFrame(bytes: Bytes, change: (frame: Frame) => Partial<Frame>): Bytes {
  const frame = unpackFrame(bytes)
  return packFrame({ ...frame, ...change(frame) })
}

function withPayload(bytes: Bytes, change: (payload: Uint8Array) => unknown): Bytes {
  return withFrame(bytes, (frame) => {
    const payload = frame.payload.slice()
    change(payload)
    return { payload }
  })
}

function flipped(frame: Bytes): Bytes {
  const copy = frame.slice()
  copy[FRAME_HEADER_BYTES] = (copy[FRAME_HEADER_BYTES] ?? 0) ^ 1
  return copy
}

/** u32 at byte 4: the frame's type */
function isOf(type: FrameType, frame: Uint8Array): boolean {
  return frame.byteLength >= FRAME_HEADER_BYTES && frame[4] === FRAME_TYPES[type]
}

type Change = (frame: Bytes, link: Pick<PeerLink, 'close'>) => readonly Bytes[]

function faultyNetwork(network: PeerNetwork, change: Change): PeerNetwork {
  return wrapLinks(network, (link) => {
    const send = link.send.bind(link)
    link.send = async (frame) => {
      for (const changed of change(frame, link)) await send(changed)
    }
    return link
  })
}

function faultySocket(socket: RelaySocket, change: Change): RelaySocket {
  const send = socket.send.bind(socket)
  socket.send = (frame) => {
    for (const changed of change(frame, socket)) send(changed)
  }
  return socket
}

/** A network all of whose links go through `wrap` before their owner gets them. */
export function wrapLinks(network: PeerNetwork, wrap: (link: PeerLink) => PeerLink): PeerNetwork {
  return {
    dial: async (peer, signal) => wrap(await network.dial(peer, signal)),
    get onLink() {
      return network.onLink
    },
    set onLink(handler) {
      network.onLink = handler === undefined ? undefined : (link) => handler(wrap(link))
    },
    expect: (members) => network.expect(members),
    reconnect: (access) => network.reconnect(access),
    stop: () => network.stop(),
  }
}
