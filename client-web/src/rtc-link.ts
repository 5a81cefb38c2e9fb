// How a tab reaches other volunteers: PeerJS over the browser's WebRTC. Runs in the window: Workers have no RTCPeerConnection.
import { openPeerJsNetwork, type PeerNetwork, type SignallingAccess } from '@starling-grid/volunteer'
import { Peer } from 'peerjs'

/**
 * @throws GridError 'coordinator-lost' when signalling cannot be opened
 * @example const network = await openPeerNetwork(access)
 */
export function openPeerNetwork(access: SignallingAccess): Promise<PeerNetwork> {
  return openPeerJsNetwork({ createPeer: (id, options) => new Peer(id, options) }, access)
}
