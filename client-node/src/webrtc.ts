// WebRTC for Node: node-datachannel behind the browser's names, so that PeerJS runs unchanged. An exception that leaves
// one of its native callbacks aborts the process: every callback is guarded here, once, at the native objects.
import { createRequire } from 'node:module'
import { withoutToken } from '@starling-grid/protocol'
import { CandidateGate } from '@starling-grid/volunteer'
import { PeerConnection, type RtcConfig, setSctpSettings } from 'node-datachannel'
import { RTCIceCandidate, RTCPeerConnection, RTCSessionDescription } from 'node-datachannel/polyfill'
import { WebSocket } from 'ws'
import { socketTrust } from './pinned-certificate.ts'

export { cleanup } from 'node-datachannel'

type PeerJs = typeof import('peerjs')
type Callable = (...args: unknown[]) => unknown

/**
 * Bytes that SCTP takes of a sender before they arrived, and of the network before they are read: 1 MiB otherwise,
 * which is 80 Mbit/s over 50 ms there and back each. How many are under way decides the link (flight-window.ts).
 */
const SCTP_BYTES = 4 * 1024 * 1024
// Of links that are made from here on. Not with another congestion control: decision 0039.
setSctpSettings({ recvBufferSize: SCTP_BYTES, sendBufferSize: SCTP_BYTES })

/** PeerJS, ready to be used in this process. */
export async function loadPeerJs(): Promise<PeerJs> {
  // On import PeerJS tests what the browser can do, with a connection to its makers' STUN servers: it gets a dummy for
  // that.
  Object.assign(globalThis, {
    RTCPeerConnection: ProbedConnection,
    RTCSessionDescription,
    RTCIceCandidate,
    WebSocket: QuietSocket,
  })
  // By `require`: Node finds no names among what an `import` of PeerJS gets.
  const peerJs = createRequire(import.meta.url)('peerjs') as PeerJs
  Object.assign(globalThis, { RTCPeerConnection: GuardedNodeConnection })
  return peerJs
}

class ProbedConnection {
  createDataChannel(): object {
    return { ordered: true, close() {} }
  }
  close(): void {}
}

/**
 * The token of the session goes into a header. PeerJS listens to `close` only; an error without a listener would end
 * the process. The close follows every error.
 */
class QuietSocket extends WebSocket {
  constructor(url: string) {
    const { address, protocols } = withoutToken(url)
    super(address, protocols, socketTrust())
    this.on('error', () => {})
  }
}

/** What PeerJS hands on from the network's options. */
interface NodeConfiguration extends RTCConfiguration {
  readonly local?: boolean
}

class GuardedNodeConnection extends RTCPeerConnection {
  readonly #gate: CandidateGate

  constructor(config: NodeConfiguration = {}) {
    super({ iceServers: [], peerConnection: guarded(new PeerConnection('starling', nativeConfig(config))) })
    this.#gate = new CandidateGate(config.local ?? false)
  }

  override async setRemoteDescription({ type, sdp = '' }: RTCSessionDescriptionInit): Promise<void> {
    await super.setRemoteDescription({ type, sdp: this.#gate.withoutOthers(sdp) })
  }

  override async addIceCandidate(candidate?: RTCIceCandidateInit | null): Promise<void> {
    if (this.#gate.takes(candidate?.candidate ?? '')) await super.addIceCandidate(candidate ?? undefined)
  }
}

/** Names and passwords travel inside the URL there, and those of TURN hold colons and slashes. */
function nativeConfig({ iceServers = [], iceTransportPolicy = 'all' }: RTCConfiguration): RtcConfig {
  const urls = iceServers.flatMap(({ urls, username, credential }) =>
    [urls].flat().map((url) => {
      const [scheme, rest] = [url.slice(0, url.indexOf(':')), url.slice(url.indexOf(':') + 1)]
      return username === undefined
        ? url
        : `${scheme}:${encodeURIComponent(username)}:${encodeURIComponent(credential ?? '')}@${rest}`
    }),
  )
  return { iceServers: urls, iceTransportPolicy }
}

/** The native object with every callback that it is given, and every native object that it gives back, guarded too. */
function guarded<T extends object>(native: T): T {
  return new Proxy(native, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name)
      if (typeof member !== 'function') return member
      return (...args: unknown[]) =>
        wrap(
          (member as Callable).apply(
            target,
            args.map((arg) => (typeof arg === 'function' ? guardedCallback(arg as Callable) : arg)),
          ),
        )
    },
  })
}

function guardedCallback(callback: Callable): Callable {
  return (...values) => {
    try {
      callback(...values.map(wrap))
    } catch (error) {
      process.emitWarning(error instanceof Error ? error : String(error), 'WebRtcCallbackWarning')
    }
  }
}

/** Data channels come from calls and into callbacks; bytes and plain values pass as they are. */
function wrap(value: unknown): unknown {
  const isNative = typeof value === 'object' && value !== null && 'sendMessageBinary' in value
  return isNative ? guarded(value) : value
}
