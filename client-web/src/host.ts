// The tab's VolunteerHost: everything that differs from a Node process. Runs in the Worker.
import { GridError } from '@starling-grid/protocol'
import { createGpuExecutor, microBatchFor, type PeerNetwork, type SignallingAccess, type VolunteerHost } from '@starling-grid/volunteer'
import { openDevice } from './gpu.ts'
import { openShardCache } from './shard-cache.ts'
import { dialRelaySocket, dialSocket } from './socket.ts'

export interface WebHostOptions {
  /** http(s) origin that served this page */
  readonly coordinatorUrl: string
  /** RTCPeerConnection exists in windows only: whoever owns the window opens the network */
  readonly openPeerNetwork: (access: SignallingAccess) => Promise<PeerNetwork>
}

export async function createWebHost(options: WebHostOptions): Promise<VolunteerHost> {
  const { coordinatorUrl, openPeerNetwork } = options
  return {
    client: 'tab',
    coordinatorUrl,
    openPeerNetwork,
    shards: await openShardCache(),
    dialCoordinator: (path) => dialSocket(coordinatorUrl.replace(/^http/, 'ws') + path),
    dialRelay: (path) => dialRelaySocket(coordinatorUrl.replace(/^http/, 'ws') + path),
    async createExecutor(spec, blockSamples) {
      const { device, adapter } = await openDevice()
      return createGpuExecutor({ device, adapter, spec, readText, ...microBatchFor(spec, blockSamples) })
    },
  }
}

/** A kernel's text. */
async function readText(url: URL): Promise<string> {
  const response = await fetch(url)
  if (!response.ok) throw new GridError('coordinator-lost', `${url.pathname} could not be fetched (${response.status}); reload the page.`)
  return response.text()
}
