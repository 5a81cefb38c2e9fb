// One end of a link that is measured, in a process or in a tab: sends as fast as the link takes, or counts what comes.
// Independent of who gives the orders.
import { FRAME_HEADER_BYTES, type MemberId } from '@starling-grid/protocol'
import type { PeerLink, PeerNetwork, SignallingAccess } from '@starling-grid/volunteer'
import { CHUNK_BYTES } from '@starling-grid/volunteer/collectives'
import { zeroChunk } from '../zero-chunk.ts'

/** What came so far, and when that was by the clock of this end (ms). */
export interface Arrived {
  readonly bytes: number
  readonly at: number
}

/** Orders come one at a time; arguments and results are JSON. */
export type LineOrders = Readonly<Record<string, (argument: never) => Promise<unknown>>>

/** ms for a link to open */
const OPEN_MS = 30_000
/** Bytes of a frame, as the library sends them. */
export const FRAME_BYTES = CHUNK_BYTES + FRAME_HEADER_BYTES

export function lineEnd(openNetwork: (access: SignallingAccess) => Promise<PeerNetwork>): LineOrders {
  let network: PeerNetwork | undefined
  let link: PeerLink | undefined
  let pushing = false
  let bytes = 0
  const take = (taken: PeerLink): void => {
    link = taken
    taken.onFrame = (frame) => {
      bytes += frame.byteLength
    }
  }
  return {
    async join(access: SignallingAccess) {
      network = await openNetwork(access)
      network.onLink = take
    },
    async expect(peer: MemberId) {
      network?.expect([peer])
    },
    async dial(peer: MemberId) {
      const dialled = await network?.dial(peer, AbortSignal.timeout(OPEN_MS))
      if (dialled !== undefined) take(dialled)
    },
    async push() {
      pushing = true
      if (link !== undefined) pushWhile(link, () => pushing).catch(() => undefined) // nothing more arrives then
    },
    async halt() {
      pushing = false
    },
    async arrived(): Promise<Arrived> {
      return { bytes, at: performance.now() }
    },
    async leave() {
      network?.stop()
    },
  }
}

async function pushWhile(link: PeerLink, goesOn: () => boolean): Promise<void> {
  const frame = zeroChunk()
  while (goesOn()) await link.send(frame)
}
