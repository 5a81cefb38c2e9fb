// The memory of the parameter server beside a version: the norms that bound the next push, and the moving mean of
// squares of delay compensation. A blob beside the version's own, so that the version has the same bytes from every
// writer. A server that begins with both goes on to the same bits. Older parameters are in neither: a server that loads
// a checkpoint begins a mode epoch, in which no push has a base before it (A2).
import {
  floatTensor,
  float32Values,
  GridError,
  readSafetensors,
  type VersionRef,
  writeSafetensors,
} from '@starling-grid/protocol'

export interface PushMemory {
  /** oldest first */
  readonly norms: readonly number[]
  /** (trained,); undefined: late pushes are not compensated */
  readonly square: Float32Array | undefined
}

const FORMAT = 'starling-push-memory-1'
/** Far above what norm-clip.ts remembers. */
const MAX_NORMS = 1024

export function encodePushMemory({ v, id }: VersionRef, { norms, square }: PushMemory): Uint8Array<ArrayBuffer> {
  const tensors = new Map([
    ['norms', { dtype: 'F64' as const, shape: [norms.length], data: new Uint8Array(Float64Array.from(norms).buffer) }],
  ])
  return writeSafetensors(
    square === undefined ? tensors : new Map([...tensors, ['square', floatTensor([square.length], square)]]),
    { format: FORMAT, version: `${v} ${id}` },
  )
}

/** `trained`: floats of `square`; 0: there must be none. @throws GridError 'version-corrupt' */
export function decodePushMemory(bytes: Uint8Array, { v, id }: VersionRef, trained: number): PushMemory {
  const { tensors, metadata } = readSafetensors(bytes)
  const [norms, square] = [tensors.get('norms'), tensors.get('square')]
  const right =
    metadata['format'] === FORMAT &&
    metadata['version'] === `${v} ${id}` &&
    norms?.dtype === 'F64' &&
    norms.data.byteLength <= MAX_NORMS * Float64Array.BYTES_PER_ELEMENT
  if (
    !right ||
    (square === undefined
      ? trained > 0
      : square.dtype !== 'F32' || square.data.byteLength !== trained * Float32Array.BYTES_PER_ELEMENT)
  )
    throw new GridError(
      'version-corrupt',
      `expected the parameter server's memory beside version ${v}, got other bytes`,
    )
  return { norms: [...new Float64Array(new Uint8Array(norms.data).buffer)], square: square && float32Values(square) }
}
