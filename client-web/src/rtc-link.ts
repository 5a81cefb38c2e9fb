// How a tab reaches other volunteers: PeerJS over the browser's WebRTC. Runs in the window: Workers have no
// RTCPeerConnection.
import { withoutToken } from '@starling-grid/protocol'
import { CandidateGate, openPeerJsNetwork, type PeerNetwork, type SignallingAccess } from '@starling-grid/volunteer'
import { Peer } from 'peerjs'

/** What PeerJS hands on from the network's options. */
interface TabConfiguration extends RTCConfiguration {
  readonly local?: boolean
}

/**
 * PeerJS makes its connections with the window's class: this one takes no candidate that a volunteer should not be sent
 * to.
 */
class GuardedTabConnection extends RTCPeerConnection {
  readonly #gate: CandidateGate

  constructor({ local = false, ...config }: TabConfiguration = {}) {
    super(config)
    this.#gate = new CandidateGate(local)
  }

  override async setRemoteDescription({ type, sdp = '' }: RTCSessionDescriptionInit): Promise<void> {
    await super.setRemoteDescription({ type, sdp: this.#gate.withoutOthers(sdp) })
  }

  override async addIceCandidate(candidate?: RTCIceCandidateInit | null): Promise<void> {
    if (this.#gate.takes(candidate?.candidate ?? '')) await super.addIceCandidate(candidate ?? undefined)
  }
}

/** PeerJS opens signalling with the window's class: this one puts the session's token into a header. */
class SignallingSocket extends WebSocket {
  constructor(url: string | URL, protocols: string | string[] = []) {
    const { address, protocols: ofSession } = withoutToken(url)
    super(address, ofSession.length > 0 ? ofSession : protocols)
  }
}

/**
 * @throws GridError 'coordinator-lost' when signalling cannot be opened
 * @example const network = await openPeerNetwork(access)
 */
export function openPeerNetwork(access: SignallingAccess): Promise<PeerNetwork> {
  window.RTCPeerConnection = GuardedTabConnection
  window.WebSocket = SignallingSocket
  return openPeerJsNetwork({ createPeer: (id, options) => new Peer(id, options) }, access)
}
