// Faults in what a volunteer sends to others: the n-th frame with partial sums meets one. All links, also relayed ones.
import { FRAME_HEADER_BYTES, type Frame, packFrame, unpackFrame } from '@starling-grid/protocol'
import type { PeerLink, PeerNetwork, RelaySocket, VolunteerHost } from '@starling-grid/volunteer'

/** What happens when the n-th such frame is about to leave; may change the frame, or answer nothing to swallow it. */
type Fault = (n: number, frame: Uint8Array<ArrayBuffer>, link: Pick<PeerLink, 'close'>) => Uint8Array<ArrayBuffer> | undefined

const FAULTS: Readonly<Record<string, (number: number) => Fault>> = {
  /** killed in the middle of a reduce, like a power cut */
  'die-at-partial': (number) => (n, frame) => {
    if (n === number) process.kill(process.pid, 'SIGKILL')
    return frame
  },
  /** the first NUMBER reduces break, also past the coordinator, then the links are good */
  'break-links': (number) => (n, frame, link) => {
    if (n > number) return frame
    link.close('fault')
    return undefined
  },
  /** partial sums that are not numbers, from the NUMBER-th on for three frames */
  'send-nan': (number) => (n, frame) => (n < number || n > number + 2 ? frame : withPayload(frame, (payload) => new Float32Array(payload.buffer, payload.byteOffset, payload.byteLength / 4).fill(Number.NaN))),
  /** bytes that are no frame */
  'send-garbage': (number) => (n, frame) => (n === number ? new Uint8Array(frame.byteLength).fill(0x5a) : frame),
}

/** The host with this fault in its links; undefined when there is no such fault. */
export function withFrameFault(host: VolunteerHost, kind: string, number: number): VolunteerHost | undefined {
  const fault = FAULTS[kind]?.(number)
  if (fault === undefined) return undefined
  let partials = 0
  const change = (frame: Uint8Array<ArrayBuffer>, link: Pick<PeerLink, 'close'>): Uint8Array<ArrayBuffer> | undefined => (isPartial(frame) ? fault(++partials, frame, link) : frame)
  return {
    ...host,
    openPeerNetwork: async (access) => faultyNetwork(await host.openPeerNetwork(access), change),
    dialRelay: async (path) => faultySocket(await host.dialRelay(path), change),
  }
}

export const FRAME_FAULTS: readonly string[] = Object.keys(FAULTS)

function withPayload(frame: Uint8Array<ArrayBuffer>, change: (payload: Uint8Array) => void): Uint8Array<ArrayBuffer> {
  const parsed: Frame = unpackFrame(frame)
  const payload = parsed.payload.slice()
  change(payload)
  return packFrame({ ...parsed, payload })
}

/** u32 at byte 4: the frame's type; 3 is `partial` */
function isPartial(frame: Uint8Array): boolean {
  return frame.byteLength >= FRAME_HEADER_BYTES && frame[4] === 3
}

type Change = (frame: Uint8Array<ArrayBuffer>, link: Pick<PeerLink, 'close'>) => Uint8Array<ArrayBuffer> | undefined

function faultyNetwork(network: PeerNetwork, change: Change): PeerNetwork {
  return wrapLinks(network, (link) => {
    const send = link.send.bind(link)
    link.send = async (frame) => {
      const changed = change(frame, link)
      if (changed !== undefined) await send(changed)
    }
    return link
  })
}

function faultySocket(socket: RelaySocket, change: Change): RelaySocket {
  const send = socket.send.bind(socket)
  socket.send = (frame) => {
    const changed = change(frame, socket)
    if (changed !== undefined) send(changed)
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
    reconnect: (access) => network.reconnect(access),
    stop: () => network.stop(),
  }
}
