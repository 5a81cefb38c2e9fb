// WebRTC for Node: libwebrtc, as in Chromium, behind the browser's names, so that PeerJS runs unchanged. Why this
// library: decision 0051.
import { createRequire } from 'node:module'
import { describeError, GridError, withoutToken } from '@starling-grid/protocol'
import { CandidateGate } from '@starling-grid/volunteer'
import { WebSocket } from 'ws'
import { socketTrust } from './pinned-certificate.ts'

type PeerJs = typeof import('peerjs')
type WebRtc = typeof import('@roamhq/wrtc')

/** By `require`: Node finds no names among what an `import` of either library gets. */
const require = createRequire(import.meta.url)
const { RTCDataChannel, RTCIceCandidate, RTCPeerConnection, RTCSessionDescription } = openLibrary()
for (const { prototype } of [RTCDataChannel, RTCPeerConnection]) Object.assign(prototype, { dispatchEvent: tellAll })

/** @throws GridError 'usage' where it has no binary */
function openLibrary(): WebRtc {
  try {
    return require('@roamhq/wrtc') as WebRtc
  } catch (error) {
    throw new GridError(
      'usage',
      'expected WebRTC for this machine (it is there for macOS, Windows on x64, and Linux with glibc 2.34), ' +
        `got ${process.platform}-${process.arch}: ${describeError(error)}; --relays-only does without`,
      { cause: error },
    )
  }
}

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
  const peerJs = require('peerjs') as PeerJs
  Object.assign(globalThis, { RTCPeerConnection: GuardedConnection })
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

/** Only the addresses that a volunteer may connect to, and data alone. */
export class GuardedConnection extends RTCPeerConnection {
  readonly #gate: CandidateGate

  constructor({ local = false, ...config }: NodeConfiguration = {}) {
    super(config)
    this.#gate = new CandidateGate(local)
  }

  override async setRemoteDescription({ type, sdp = '' }: RTCSessionDescriptionInit): Promise<void> {
    refuseMedia(sdp)
    await super.setRemoteDescription({ type, sdp: this.#gate.withoutOthers(sdp) })
  }

  override async addIceCandidate(candidate?: RTCIceCandidateInit | null): Promise<void> {
    if (this.#gate.takes(candidate?.candidate ?? '')) await super.addIceCandidate(candidate ?? undefined)
  }
}

/** Codecs of sound and pictures would read what a stranger sends. @throws GridError 'message-malformed' */
function refuseMedia(sdp: string): void {
  const other = /^m=(?!application )[^\r\n]{0,60}/m.exec(sdp)
  if (other !== null)
    throw new GridError('message-malformed', `expected a session description of data alone, got "${other[0]}"`)
}

type Listener = (event: object) => void

interface Listened {
  readonly _listeners?: Readonly<Record<string, Iterable<Listener>>>
}

/** In place of the library's, with which a listener that throws ends the process. */
function tellAll(this: Listened, event: { readonly type: string }): void {
  process.nextTick(() => {
    const own: unknown = Reflect.get(this, `on${event.type}`)
    const listeners = [
      ...(this._listeners?.[event.type] ?? []),
      ...(typeof own === 'function' ? [own as Listener] : []),
    ]
    for (const listener of listeners)
      try {
        listener.call(this, event)
      } catch (error) {
        process.emitWarning(error instanceof Error ? error : String(error), 'WebRtcCallbackWarning')
      }
  })
}
