// A headless volunteer with a fault built in, for tests: faulty-volunteer.ts URL --name NAME, and STARLING_FAULT=KIND:NUMBER.
// All else is the production volunteer; only what it sends to other volunteers goes through the fault.
import { createNodeHost } from '@starling-grid/client-node/host'
import { FRAME_HEADER_BYTES, type Frame, packFrame, unpackFrame } from '@starling-grid/protocol'
import { createVolunteer, type PeerLink, type PeerNetwork, type RelaySocket, type VolunteerHost } from '@starling-grid/volunteer'

/** What happens when the n-th frame with partial sums is about to leave; may change the frame, or answer nothing to swallow it. */
type Fault = (n: number, frame: Uint8Array<ArrayBuffer>, link: { close(reason: string): void }) => Uint8Array<ArrayBuffer> | undefined

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

let partials = 0

/** The same fault on a link through the coordinator. */
function faultyRelay(socket: RelaySocket, fault: Fault): RelaySocket {
  const send = socket.send.bind(socket)
  socket.send = (frame) => {
    const changed = isPartial(frame) ? fault(++partials, frame, socket) : frame
    if (changed !== undefined) send(changed)
  }
  return socket
}

function faultyNetwork(network: PeerNetwork, fault: Fault): PeerNetwork {
  const wrap = (link: PeerLink): PeerLink => {
    const send = link.send.bind(link)
    link.send = async (frame) => {
      const changed = isPartial(frame) ? fault(++partials, frame, link) : frame
      if (changed !== undefined) await send(changed)
    }
    return link
  }
  const dial = network.dial.bind(network)
  network.dial = async (peer, signal) => wrap(await dial(peer, signal))
  return new Proxy(network, {
    set: (target, key, value) => Reflect.set(target, key, key === 'onLink' && typeof value === 'function' ? (link: PeerLink) => Reflect.apply(value, undefined, [wrap(link)]) : value),
    get: (target, key) => {
      const value: unknown = Reflect.get(target, key)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

const [coordinatorUrl = '', , name = 'faulty'] = process.argv.slice(2)
const [kind = '', number = '1'] = (process.env['STARLING_FAULT'] ?? '').split(':')
const fault = FAULTS[kind]?.(Number(number))
if (fault === undefined) throw new Error(`STARLING_FAULT is one of ${Object.keys(FAULTS).join(', ')} with a number, got "${kind}:${number}"`)
const host: VolunteerHost = createNodeHost({ coordinatorUrl, executor: process.argv.includes('reference') ? 'reference' : 'webgpu' })
const openPeerNetwork = host.openPeerNetwork.bind(host)
const dialRelay = host.dialRelay.bind(host)
const volunteer = createVolunteer({ ...host, openPeerNetwork: async (access) => faultyNetwork(await openPeerNetwork(access), fault), dialRelay: async (path) => faultyRelay(await dialRelay(path), fault) }, { name, onStatus: () => undefined })
process.on('SIGTERM', () => void volunteer.stop())
process.once('disconnect', () => process.exit(1)) // the test is gone
process.channel?.unref()
await volunteer.run().catch((error: unknown) => console.error(error))
process.exit(0)
