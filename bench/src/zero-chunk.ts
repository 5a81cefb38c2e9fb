// A frame as the library's exchanges send it, of zeros: for measurements of what a link carries.
import { packFrame } from '@starling-grid/protocol'
import { CHUNK_BYTES } from '@starling-grid/volunteer/collectives'

export function zeroChunk(): Uint8Array<ArrayBuffer> {
  const payload = new Uint8Array(CHUNK_BYTES)
  return packFrame({ type: 'chunk', generation: 0, step: 0, bucket: 0, hop: 0, offset: 0, payload })
}
