// The tab's VolunteerHost: everything that differs from a Node process. Runs in the Worker.
import { type JobId, systemClock } from '@starling-grid/protocol'
import {
  type DeviceTrouble,
  type KeptNotes,
  LOSSES_KEPT_MS,
  microBatchFor,
  type OwnLimits,
  renewedExecutor,
  SEEN_SUBMIT_MS,
  SUBMIT_MS,
  type PeerNetwork,
  type SignallingAccess,
  UPLOADS_KEPT_MS,
  type VolunteerHost,
} from '@starling-grid/volunteer'
import { chooseExecutor, openOnGpu, say } from './computing.ts'
import { keepChanged, readKept } from './kept-values.ts'
import { openShardCache } from './shard-cache.ts'
import { openSigner } from './signer.ts'
import { dialRelaySocket, dialSocket } from './socket.ts'
import type { TabExecutor } from './worker-messages.ts'

export interface WebHostOptions {
  /** http(s) origin that served this page */
  readonly coordinatorUrl: string
  /** RTCPeerConnection exists in windows only: the window opens the network */
  readonly openPeerNetwork: (access: SignallingAccess) => Promise<PeerNetwork>
  readonly isHidden: () => boolean
  readonly limits: OwnLimits
  /** bytes of shards that are kept */
  readonly diskBytes: number
  readonly relaysOnly: boolean
  /** this page's coordinator sends it to another one, or is gone */
  readonly leaveFor: (coordinatorUrl: string, job: JobId | null) => void
  /** undefined: what is found and measured */
  readonly executor?: TabExecutor | undefined
}

export async function createWebHost(options: WebHostOptions): Promise<VolunteerHost> {
  const { coordinatorUrl, openPeerNetwork, isHidden, limits, diskBytes, relaysOnly, leaveFor } = options
  const shards = await openShardCache(diskBytes)
  let choice: Promise<TabExecutor> | undefined
  return {
    client: 'tab',
    clock: systemClock,
    coordinatorUrl,
    signer: openSigner,
    openPeerNetwork,
    isHidden,
    leaveFor,
    shards,
    dialCoordinator: (path) => dialSocket(coordinatorUrl.replace(/^http/, 'ws') + path),
    dialRelay: (path, token) => dialRelaySocket(coordinatorUrl.replace(/^http/, 'ws') + path, token),
    limits,
    relaysOnly,
    declined: keptNotes('declined', LOSSES_KEPT_MS),
    uploaded: keptNotes('uploaded', UPLOADS_KEPT_MS),
    async createExecutor(spec, blockSamples, bounds) {
      choice ??= options.executor ? Promise.resolve(options.executor) : chooseExecutor(shards)
      // only an adapter has shader-f16
      const executor = bounds?.needsF16 === true ? 'webgpu' : await choice
      const size = microBatchFor(spec, blockSamples)
      if (executor === 'wasm') {
        const { openOnProcessor } = await import('./executor-choice.ts')
        return openOnProcessor(spec, { ...size, ...bounds, say })
      }
      const submitMs = () => (isHidden() ? SUBMIT_MS : SEEN_SUBMIT_MS)
      const open = (trouble: DeviceTrouble) => openOnGpu(shards, { spec, trouble, submitMs, ...size, ...bounds })
      return renewedExecutor(open, { say, onLost: () => bounds?.onDeviceLost() })
    },
  }
}

interface TabNote {
  readonly text: string
  /** ms since the epoch */
  readonly at: number
}

/** One value for all tabs, in which each has an entry of its own. `keptMs`: ms for which a note counts. */
function keptNotes(name: string, keptMs: number): KeptNotes {
  const own = crypto.randomUUID()
  const recent = (notes: ReadonlyMap<string, TabNote> | undefined): [string, TabNote][] =>
    notes instanceof Map ? [...notes].filter(([, { at }]) => Date.now() - at < keptMs) : []
  return {
    others: async () =>
      recent(await readKept(name))
        .filter(([tab]) => tab !== own)
        .map(([, { text }]) => text),
    write: (text) =>
      keepChanged<Map<string, TabNote>>(name, (notes) => new Map([...recent(notes), [own, { text, at: Date.now() }]])),
  }
}
