// The path of a link whose members cannot reach each other directly (R18). Each of the two opens a WebSocket to the
// coordinator, which forwards every binary message to the other. A message is a frame; nothing else is said.
import { FRAME_HEADER_BYTES } from './frame.ts'
import type { MemberId } from './ids.ts'
import { MAX_FRAME_PAYLOAD_BYTES } from './limits.ts'
import { ROUTES } from './routes.ts'

/** Bytes of one message, which is one frame. */
export const MIN_RELAY_MESSAGE_BYTES = FRAME_HEADER_BYTES
export const MAX_RELAY_MESSAGE_BYTES = FRAME_HEADER_BYTES + MAX_FRAME_PAYLOAD_BYTES

/** Path and query of this end, whose socket offers the session's token (session-socket.ts). */
export function relayPath({ self, peer }: { readonly self: MemberId; readonly peer: MemberId }): string {
  return `${ROUTES.relay}?${new URLSearchParams({ id: self, peer })}`
}
