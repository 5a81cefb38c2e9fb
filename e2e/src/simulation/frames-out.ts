// Frames of one member on their way to others: over the link between the two, past a cut one through the coordinator
// (R18), or lost.
import { type MemberId, packFrame } from '@starling-grid/protocol'
import type { Addressed } from '@starling-grid/volunteer/testing'
import type { Connection } from './connection.ts'
import type { Context } from './context.ts'
import type { RingWork } from './ring-work.ts'

export interface FrameSender {
  readonly id: MemberId
  readonly connection: Connection | undefined
}

/** ms until a broken link is noticed */
export const LINK_NOTICE_MS = 2000

export function sendFrames(
  context: Context,
  from: FrameSender,
  frames: readonly Addressed[],
  ring: RingWork | undefined,
): void {
  for (const { to: rank, frame } of frames) {
    const to = ring?.memberAt(rank)
    if (to === undefined) continue
    const bytes = packFrame(frame) // at once: payloads are views of what changes
    if (!reaches(context, from, to, ring?.isRelayed(rank) === true)) notArrived(context, from.id, to, frame.generation)
    else
      context.agenda.send(
        `${from.id}⇢${to}`,
        () => `${from.id} ⇢ ${to}: ${frame.type} of step ${frame.step}, g${frame.generation}`,
        () => context.peer(to)?.frameArrived(from.id, bytes),
      )
  }
}

/** The coordinator carries frames past a link that is cut, as long as both have a socket to it. */
function reaches(context: Context, { id, connection }: FrameSender, to: MemberId, relayed: boolean): boolean {
  if (!relayed) return !context.isCut(id, to)
  context.counts.relayedFrames++
  return connection?.up === true && context.peer(to)?.connection?.up === true
}

/** The receiver gives up waiting for it. */
function notArrived(context: Context, from: MemberId, to: MemberId, generation: number): void {
  const peer = context.peer(to)
  context.agenda.later(
    LINK_NOTICE_MS,
    () => `${to} waits in vain for frames of ${from}`,
    () => peer?.missed(from, generation),
  )
}
