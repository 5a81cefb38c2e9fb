// The first frame of either side of a link: it shows that frames pass, since some channels open on one side only. On a
// direct link it also proves who greets. On a relayed one the coordinator vouches for the name.
import {
  type Frame,
  FRAME_HEADER_BYTES,
  GridError,
  type MemberId,
  packFrame,
  unpackFrame,
} from '@starling-grid/protocol'

/** Bytes of a greeting: a header and a short JSON object. */
export const MAX_GREETING_BYTES = FRAME_HEADER_BYTES + 200

export function greeting(self: MemberId): Uint8Array<ArrayBuffer> {
  return greetingOf(new TextEncoder().encode(JSON.stringify({ from: self })))
}

/** `payload`: the proof of a direct link (protocol/src/link-proof.ts). */
export function greetingOf(payload: Uint8Array): Uint8Array<ArrayBuffer> {
  return packFrame({ type: 'greeting', generation: 0, step: 0, bucket: 0, hop: 0, offset: 0, payload })
}

/**
 * Returns what it carries. @throws GridError 'message-too-large', 'message-unexpected', 'message-malformed' or
 * 'checksum'
 */
export function requireGreeting(bytes: Uint8Array): Frame['payload'] {
  if (bytes.byteLength > MAX_GREETING_BYTES)
    throw new GridError(
      'message-too-large',
      `expected a greeting of at most ${MAX_GREETING_BYTES} bytes, got a longer one`,
    )
  const { type, payload } = unpackFrame(bytes)
  if (type !== 'greeting')
    throw new GridError('message-unexpected', `expected a greeting as the first frame, got ${type}`)
  return payload
}
