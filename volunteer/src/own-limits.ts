// What the owner of this machine allows, whatever a coordinator asks for. Each refusal says what was needed and what to
// raise. Pure, but for the clock of the upload budget.
import { activationBytesPerSample, type ModelSpec, parameterLayout } from '@starling-grid/model'
import { GridError } from '@starling-grid/protocol'

export interface OwnLimits {
  /** of one job, on this machine and its GPU together */
  readonly memoryBytes: number
  /** to other volunteers and to the coordinator, in an hour */
  readonly uploadBytesPerHour: number
}

/** Most jobs stay below; a machine with 8 GB keeps half for its owner, and a line of 40 Mbit/s a tenth free. */
export const DEFAULT_LIMITS: OwnLimits = { memoryBytes: 4e9, uploadBytesPerHour: 16e9 }

/**
 * f32 vectors of the model's length that a member holds beside its executor: parameters, two moments, two gradients,
 * the next version (3), the executor's copy, and a whole state as bytes (3).
 */
const HELD_VECTORS = 12
/** Vectors that leave a member of a ring in a step, below: 2 (N − 1) / N of the gradient. */
const SENT_VECTORS = 2
const HOUR_MS = 3_600_000

/**
 * Before anything is fetched or allocated: bytes that the executor may take of the limit.
 * @throws GridError 'own-limit'
 */
export function executorBytes(spec: ModelSpec, { memoryBytes, uploadBytesPerHour }: OwnLimits): number {
  const vectorBytes = Float32Array.BYTES_PER_ELEMENT * parameterLayout(spec).total
  const least = HELD_VECTORS * vectorBytes + activationBytesPerSample(spec)
  if (least > memoryBytes) throw overLimit('memory', least, memoryBytes)
  if (SENT_VECTORS * vectorBytes > uploadBytesPerHour)
    throw overLimit('upload', SENT_VECTORS * vectorBytes, uploadBytesPerHour)
  return memoryBytes - HELD_VECTORS * vectorBytes
}

export function overLimit(what: 'memory' | 'upload', needed: number, allowed: number): GridError {
  const [text, option, setting] =
    what === 'memory'
      ? [`${sizeOf(allowed)} of memory`, '--max-memory', 'Memory']
      : [`${sizeOf(allowed)} of upload an hour`, '--max-upload', 'Upload']
  return new GridError(
    'own-limit',
    `expected a job within this volunteer's limit of ${text}, got one that needs ${sizeOf(needed)}; raise ${option}, in a browser "${setting}" under Limits`,
  )
}

function sizeOf(bytes: number): string {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${(bytes / 1e6).toFixed(1)} MB`
}

/** Bytes that may still leave this machine in the present hour, which begins with the first of them. */
export class UploadBudget {
  readonly #perHour: number
  readonly #now: () => number
  #since = Number.NEGATIVE_INFINITY
  #bytes = 0
  #refused = false
  /** called when bytes were refused */
  onSpent: ((error: GridError) => void) | undefined

  constructor(perHour: number, now: () => number) {
    this.#perHour = perHour
    this.#now = now
  }

  /** Before the bytes are sent. @throws GridError 'own-limit' */
  take(bytes: number): void {
    if (this.refillMs <= 0) {
      this.#since = this.#now()
      this.#bytes = 0
      this.#refused = false
    }
    if (this.#bytes + bytes > this.#perHour) {
      this.#refused = true
      const error = overLimit('upload', this.#bytes + bytes, this.#perHour)
      this.onSpent?.(error)
      throw error
    }
    this.#bytes += bytes
  }

  /** Bytes were refused in the present hour. */
  get isSpent(): boolean {
    return this.#refused && this.refillMs > 0
  }

  /** until the next hour begins */
  get refillMs(): number {
    return this.#since + HOUR_MS - this.#now()
  }
}
