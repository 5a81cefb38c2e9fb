// The headless process's VolunteerHost: everything that differs from a tab.
import { isLoopbackUrl, systemClock } from '@starling-grid/protocol'
import {
  DEFAULT_LIMITS,
  LOSSES_KEPT_MS,
  type OwnLimits,
  UPLOADS_KEPT_MS,
  type VolunteerHost,
} from '@starling-grid/volunteer'
import { type ExecutorOptions, executorOpener } from './executors.ts'
import { HashThread } from './hash-thread.ts'
import { sendRequest } from './http.ts'
import { openNotes } from './kept-notes.ts'
import { type RackParts, withMachines } from './rack/rack.ts'
import { openPeerNetwork } from './rtc-link.ts'
import { DEFAULT_DISK_BYTES, openShardCache } from './shard-cache.ts'
import { openSigner } from './signer.ts'
import { dialRelaySocket, dialSocket } from './socket.ts'
import type { ListenPlace } from './tcp-door.ts'
import { witnessIn } from './witness-folder.ts'

export { openWebRtc } from './rtc-link.ts'
export { type ListenPlace, listenPlaceIn } from './tcp-door.ts'

/** Of all volunteers of this process. */
const hashes = new HashThread()

export interface NodeHostOptions extends ExecutorOptions {
  /** http(s) origin of the coordinator */
  readonly coordinatorUrl: string
  /** other machines of the rack, which compute with this one as one member */
  readonly rack?: Pick<RackParts, 'machines' | 'key'> | undefined
  /** hosts of STUN and TURN servers beside the coordinator's own */
  readonly allowedIce?: readonly string[]
  /** of shards that are kept for later */
  readonly maxDiskBytes?: number
  readonly limits?: OwnLimits
  /** its address is shown to no other volunteer */
  readonly relaysOnly?: boolean
  /** where links over TCP are taken; false: neither taken nor dialled */
  readonly tcp?: ListenPlace | false
}

export function createNodeHost({
  coordinatorUrl,
  rack,
  allowedIce = [],
  maxDiskBytes = DEFAULT_DISK_BYTES,
  limits = DEFAULT_LIMITS,
  relaysOnly = false,
  tcp = {},
  ...computing
}: NodeHostOptions): VolunteerHost {
  const own = executorOpener(computing)
  const { say = (text: string) => console.error(text) } = computing
  const createExecutor = rack === undefined ? own : withMachines(own, { ...rack, say })
  return {
    client: 'node',
    clock: systemClock,
    allowedIce,
    limits,
    relaysOnly,
    declined: openNotes('declined', LOSSES_KEPT_MS),
    // Grids of this machine alone send through its loopback: what its owner gives to others is not used up by them.
    ...(isLoopbackUrl(coordinatorUrl) ? {} : { uploaded: openNotes('uploaded', UPLOADS_KEPT_MS) }),
    signer: openSigner,
    openPeerNetwork: (access) => openPeerNetwork(access, tcp),
    sendRequest,
    shards: openShardCache({ maxBytes: maxDiskBytes }),
    digestOf: (bytes) => hashes.digestOf(bytes),
    ...witnessIn(process.env['STARLING_WITNESS']),
    ...doorOf(coordinatorUrl),
    at: doorOf,
    createExecutor,
  }
}

function doorOf(coordinatorUrl: string): ReturnType<NonNullable<VolunteerHost['at']>> {
  const origin = coordinatorUrl.replace(/^http/, 'ws')
  return {
    coordinatorUrl,
    dialCoordinator: (path) => dialSocket(origin + path),
    dialRelay: (path, token) => dialRelaySocket(origin + path, token),
  }
}
