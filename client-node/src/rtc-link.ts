// How a headless volunteer reaches others: PeerJS over node-datachannel.
import {
  openPeerJsNetwork,
  type PeerJsPlatform,
  type PeerNetwork,
  type SignallingAccess,
} from '@starling-grid/volunteer'

/** Networks of this process that are not released; the native library is cleaned up after the last. */
let open = 0

/**
 * @throws GridError 'coordinator-lost' when signalling cannot be opened
 * @example const network = await openPeerNetwork(access)
 */
export async function openPeerNetwork(access: SignallingAccess): Promise<PeerNetwork> {
  return openPeerJsNetwork(await openWebRtc(), access)
}

/** The native library behind PeerJS' class, for one network. */
export async function openWebRtc(): Promise<PeerJsPlatform> {
  // Loaded here and not above: commands that open no links should not pay for the native library.
  const { loadPeerJs, cleanup } = await import('./webrtc.ts')
  const { Peer } = await loadPeerJs()
  open++
  return {
    createPeer: (id, { config, ...options }) =>
      new Peer(id, { ...options, config: { ...config, iceServers: [...config.iceServers] } }),
    // Without this its threads keep the process from ending.
    released: () => {
      open--
      if (open === 0) cleanup()
    },
  }
}
