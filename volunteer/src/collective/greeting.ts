// The first frame of either side of a link. Who greets is known from signalling or from the relay, where the
// coordinator vouches for the name; the greeting shows that frames pass: some channels open on one side only.
import { FRAME_HEADER_BYTES, GridError, type MemberId, packFrame, unpackFrame } from '@starling-grid/protocol'

/** Bytes of a greeting: a header and a short JSON object. */
const MAX_GREETING_BYTES = FRAME_HEADER_BYTES + 200

export function greeting(self: MemberId): Uint8Array<ArrayBuffer> {
  const payload = new TextEncoder().encode(JSON.stringify({ from: self }))
  return packFrame({ type: 'greeting', generation: 0, step: 0, bucket: 0, hop: 0, offset: 0, payload })
}

/** @throws GridError 'message-too-large', 'message-unexpected', 'message-malformed' or 'checksum' */
export function requireGreeting(bytes: Uint8Array): void {
  if (bytes.byteLength > MAX_GREETING_BYTES)
    throw new GridError('message-too-large', `a greeting has at most ${MAX_GREETING_BYTES} bytes`)
  const { type } = unpackFrame(bytes)
  if (type !== 'greeting') throw new GridError('message-unexpected', `the first frame is a greeting, got ${type}`)
}
