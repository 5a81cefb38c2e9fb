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
/** Where a frame's header has its step: here it is the frame's number. */
const STEP_AT = 12
/** Bytes of a frame, as the library sends them. */
export const FRAME_BYTES = CHUNK_BYTES + FRAME_HEADER_BYTES

export function lineEnd(openNetwork: (access: SignallingAccess) => Promise<PeerNetwork>): LineOrders {
  let network: PeerNetwork | undefined
  let link: PeerLink | undefined
  let pushing = false
  let pushed = 0
  let bytes = 0
  const take = (taken: PeerLink): void => {
    link = taken
    let expected = 0
    taken.onFrame = (frame) => {
      const number = markIn(frame)
      // Thrown, it closes the link: nothing more arrives, and there is no figure.
      if (number !== expected++) throw new Error(`expected frame ${expected - 1}, got ${number}`)
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
      const goesOn = (): number | undefined => (pushing ? pushed++ : undefined)
      if (link !== undefined) pushWhile(link, goesOn).catch(() => undefined) // nothing more arrives then
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

/** `next`: the number of the next frame; undefined: it was the last. */
async function pushWhile(link: PeerLink, next: () => number | undefined): Promise<void> {
  const frame = zeroChunk()
  for (let number = next(); number !== undefined; number = next()) {
    new DataView(frame.buffer).setUint32(STEP_AT, number, true)
    await link.send(frame)
  }
}

function markIn(frame: Uint8Array): number {
  return new DataView(frame.buffer, frame.byteOffset).getUint32(STEP_AT, true)
}
