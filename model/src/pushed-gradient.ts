// The body of a push as it comes, encoded or not: what only who adds pushes up needs. Read once for its squares, which
// say whether it is finite, too, and once to be added.
import { GridError } from '@starling-grid/protocol'
import { sumOfSquares } from '@starling-grid/shaders'
import { completed, decodedRuns, type EncodedVector } from './encoded-vector.ts'
import { type GradientForm, readingRuns } from './gradient-body.ts'
import { type GradientRun, overRuns } from './gradient-runs.ts'

/** Elements whose squares are one sum. A norm is the sum of those of all blocks, in their order. */
export const BLOCK_ELEMENTS = 4096
/** Element i of a block belongs to partial sum i mod 4, as in `sumOfSquares`. */
const LANES = 4

/** A pushed gradient that was checked; its memory is that of the body. */
export interface PushedGradient {
  /** Σ gradients; an encoded one is decoded anew each time */
  runs(): Iterable<GradientRun>
  readonly squares: PushSquares
  /** as it was pushed, for who decodes it elsewhere; absent: as f32 */
  readonly encoded?: EncodedVector
}

/** Σ x² of the trained part, and of the running means and variances behind it. */
export interface PushSquares {
  readonly gradient: number
  readonly statistics: number
}

/** All at once. @throws GridError as readingPush */
export function readPush(body: Uint8Array, form: GradientForm, trained: number): PushedGradient {
  return completed(readingPush(body, form, trained))
}

/**
 * In pieces, between which the caller may do other work; nothing of the model's size is allocated. `trained`: numbers
 * before the running means and variances.
 * @throws GridError 'gradient-shape', 'gradient-not-finite', 'message-malformed'
 */
export function* readingPush(
  body: Uint8Array,
  form: GradientForm,
  trained: number,
): Generator<undefined, PushedGradient> {
  const { encoding, pieces } = form
  const encoded = encoding && { bytes: body, encoding, length: pieces[0]?.length ?? 0 }
  const runs = encoded === undefined ? yield* readingRuns(body, form) : () => decodedRuns(encoded)
  return { runs, squares: yield* summingSquares(runs(), trained), ...(encoded ? { encoded } : {}) }
}

/** The same bits as from one vector, however it is cut into runs. @throws GridError 'gradient-not-finite' */
export function* summingSquares(runs: Iterable<GradientRun>, trained: number): Generator<undefined, PushSquares> {
  const [gradient, statistics] = [new SquaresInOrder(), new SquaresInOrder()]
  yield* overRuns(runs, (run) => {
    const { before, behind } = partedRun(run, trained)
    if (before !== undefined) gradient.note(before)
    if (behind !== undefined) statistics.note({ ...behind, start: behind.start - trained })
    // squares of f32 numbers never add up to more than an f64 holds
    if (!Number.isFinite(gradient.sum + statistics.sum)) requireFinite(run.values)
  })
  return { gradient: gradient.sum, statistics: statistics.sum }
}

/** @throws GridError 'gradient-not-finite' */
function requireFinite(values: Float32Array): void {
  for (let i = 0; i < values.length; i++) {
    const value = values[i] ?? 0
    // takes a third of isFinite's time
    if (value - value !== 0) throw new GridError('gradient-not-finite', `expected finite elements, got ${value}`)
  }
}

/** What of a run lies in front of a border, and what behind it. */
export function partedRun(
  run: GradientRun,
  border: number,
): { readonly before?: GradientRun; readonly behind?: GradientRun } {
  const { start, length, values, places } = run
  const at = border - start
  if (at >= length) return { before: run }
  if (at <= 0) return { behind: run }
  const cut = places === undefined ? at : firstFrom(places, at)
  const before = { start, length: at, values: values.subarray(0, cut) }
  const behind = { start: border, length: length - at, values: values.subarray(cut) }
  if (places === undefined) return { before, behind }
  return {
    before: { ...before, places: places.subarray(0, cut) },
    behind: { ...behind, places: places.subarray(cut).map((place) => place - at) },
  }
}

/** How many of rising places are below a border. */
function firstFrom(places: Uint32Array, border: number): number {
  const first = places.findIndex((place) => place >= border)
  return first === -1 ? places.length : first
}

/** Of runs in their order. */
class SquaresInOrder {
  readonly #lanes = new Float64Array(LANES)
  /** of the blocks before the open one */
  #closed = 0
  #block = 0

  /** Of all blocks so far. */
  get sum(): number {
    const [a = 0, b = 0, c = 0, d = 0] = this.#lanes
    return this.#closed + (a + b + (c + d))
  }

  note({ start, values, places }: GradientRun): void {
    if (places !== undefined) return this.#noteKept(start, values, places)
    for (let from = 0; from < values.length;) {
      const first = start + from
      const end = Math.min(values.length, from + BLOCK_ELEMENTS - (first % BLOCK_ELEMENTS))
      this.#open(Math.floor(first / BLOCK_ELEMENTS))
      if (end - from === BLOCK_ELEMENTS) this.#closed += sumOfSquares(values.subarray(from, end))
      else for (let i = from; i < end; i++) this.#add(start + i, values[i] ?? 0)
      from = end
    }
  }

  #noteKept(start: number, values: Float32Array, places: Uint32Array): void {
    for (let i = 0; i < places.length; i++) {
      const place = start + (places[i] ?? 0)
      this.#open(Math.floor(place / BLOCK_ELEMENTS))
      this.#add(place, values[i] ?? 0)
    }
  }

  #open(block: number): void {
    if (block === this.#block) return
    this.#closed = this.sum
    this.#lanes.fill(0)
    this.#block = block
  }

  #add(place: number, value: number): void {
    const lane = place % LANES
    this.#lanes[lane] = (this.#lanes[lane] ?? 0) + value * value
  }
}
