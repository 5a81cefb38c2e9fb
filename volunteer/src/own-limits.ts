// What the owner of this machine allows, whatever a coordinator asks for. Each refusal says what was needed and what to
// raise. Pure.
import {
  activationBytesPerSample,
  fixedEntries,
  type ModelSpec,
  parameterLayout,
  type Storage,
} from '@starling-grid/model'
import { GridError } from '@starling-grid/protocol'
import { trainingFlops } from './graph/flops.ts'
import { heldWords } from './graph/packed.ts'

export interface OwnLimits {
  /** of one job, on this machine and its GPU together */
  readonly memoryBytes: number
  /** to other volunteers and to the coordinator, in an hour */
  readonly uploadBytesPerHour: number
  /** floating-point operations of one block, forward and backward; absent: DEFAULT_BLOCK_FLOPS */
  readonly blockFlops?: number
}

/** Most jobs stay below; a machine with 8 GB keeps half for its owner, and a line of 40 Mbit/s a tenth free. */
export const DEFAULT_LIMITS: OwnLimits = { memoryBytes: 4e9, uploadBytesPerHour: 16e9 }
/** Two and a half minutes of a weak GPU (MAX_WORK in a second): nothing that is shorter comes of a block. */
export const DEFAULT_BLOCK_FLOPS = 1e13

/**
 * f32 vectors of the model's length that a member holds beside its executor. They are parameters, two moments, two
 * gradients, the next version (3), the executor's copy, and a whole state as bytes (3).
 */
const HELD_VECTORS = 12
/** Vectors that leave a member of a ring in a step, below: 2 (N − 1) / N of the gradient. */
const SENT_VECTORS = 2

/** What a base model is stored in at least: with this a job may be refused before anything is fetched. */
export const SMALLEST_STORAGE: Storage = 'int4'

/**
 * Before anything is allocated: bytes that the executor may take of the limit. `storage`: of frozen matrices, which
 * executors keep packed where memory is short.
 * @throws GridError 'own-limit'
 */
export function executorBytes(
  spec: ModelSpec,
  { memoryBytes, uploadBytesPerHour }: OwnLimits,
  storage: Storage = 'f32',
): number {
  const vectorBytes = Float32Array.BYTES_PER_ELEMENT * parameterLayout(spec).total
  const min = HELD_VECTORS * vectorBytes + activationBytesPerSample(spec) + fixedBytes(spec, storage)
  if (min > memoryBytes) throw overLimit('memory', min, memoryBytes, 'at least ')
  if (SENT_VECTORS * vectorBytes > uploadBytesPerHour)
    throw overLimit('upload', SENT_VECTORS * vectorBytes, uploadBytesPerHour)
  return memoryBytes - HELD_VECTORS * vectorBytes
}

function fixedBytes(spec: ModelSpec, storage: Storage): number {
  const packed = storage === 'f32' ? undefined : storage
  return fixedEntries(spec).reduce((sum, entry) => sum + Float32Array.BYTES_PER_ELEMENT * heldWords(entry, packed), 0)
}

/**
 * Before anything is allocated or compiled: each dispatch is short (MAX_WORK), and yet a block may have any number of
 * them.
 * @throws GridError 'own-limit'
 */
export function requireBlockWork(
  spec: ModelSpec,
  samples: number,
  { blockFlops = DEFAULT_BLOCK_FLOPS }: Pick<OwnLimits, 'blockFlops'>,
): void {
  const flops = trainingFlops(spec, samples)
  if (flops <= blockFlops) return
  throw new GridError(
    'own-limit',
    `expected blocks of at most ${blockFlops / 1e12} TFLOP, ` +
      `got blocks of ${samples} samples with ${(flops / 1e12).toPrecision(3)}; ` +
      'take part in a job with smaller blocks, or raise --max-work',
  )
}

/** `bound`: before `needed`, where it is no exact number */
export function overLimit(what: 'memory' | 'upload', needed: number, allowed: number, bound = ''): GridError {
  const [text, option, setting] =
    what === 'memory'
      ? [`${sizeOf(allowed)} of memory`, '--max-memory', 'Memory']
      : [`${sizeOf(allowed)} of upload an hour`, '--max-upload', 'Upload']
  return new GridError(
    'own-limit',
    `expected a job within this volunteer's limit of ${text}, got one that needs ${bound}${sizeOf(needed)}; ` +
      `raise ${option}, in a browser "${setting}" under Limits`,
  )
}

function sizeOf(bytes: number): string {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${(bytes / 1e6).toFixed(1)} MB`
}
