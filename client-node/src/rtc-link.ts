// How a headless volunteer reaches others: PeerJS over WebRTC, and before it TCP (tcp-door.ts).
import {
  openPeerJsNetwork,
  type PeerJsPlatform,
  type PeerNetwork,
  type SignallingAccess,
} from '@starling-grid/volunteer'
import { type ListenPlace, openTcpDoor } from './tcp-door.ts'

/**
 * `tcp`: where links over TCP are taken; false: neither taken nor dialled.
 * @throws GridError 'coordinator-lost' when signalling cannot be opened, 'usage' when there is no such place, or no
 * WebRTC for this machine
 * @example const network = await openPeerNetwork(access)
 */
export async function openPeerNetwork(access: SignallingAccess, tcp: ListenPlace | false = {}): Promise<PeerNetwork> {
  const platform = await openWebRtc()
  const door = tcp === false ? undefined : await openTcpDoor(access.url, tcp)
  return openPeerJsNetwork({ ...platform, door }, access)
}

/** The native library behind PeerJS' class, for one network. */
export async function openWebRtc(): Promise<PeerJsPlatform> {
  // Loaded here and not above: commands that open no links should not pay for the native library.
  const { loadPeerJs } = await import('./webrtc.ts')
  const { Peer } = await loadPeerJs()
  return {
    createPeer: (id, { config, ...options }) =>
      new Peer(id, { ...options, config: { ...config, iceServers: [...config.iceServers] } }),
  }
}
