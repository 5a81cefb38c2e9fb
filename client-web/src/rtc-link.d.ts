import { type PeerNetwork, type SignallingAccess } from '@starling-grid/volunteer'
/**
 * @throws GridError 'coordinator-lost' when signalling cannot be opened
 * @example const network = await openPeerNetwork(access)
 */
export declare function openPeerNetwork(access: SignallingAccess): Promise<PeerNetwork>
