// One gradient of several devices: their sums are added in the order of the devices, so that equal shares give equal
// bits. A range is handed out once all of them have it; the devices compute on meanwhile.
import type { FloatRange } from '../floats.ts'
import type { EarlyRanges } from './executor.ts'

export class JoinedRanges {
  readonly #into: Float32Array
  readonly #early: EarlyRanges | undefined
  readonly #parts: readonly Float32Array[]
  /** ranges that each device has */
  readonly #final: number[]
  #given = 0

  /** `parts`: the memory that each device writes its gradient to */
  constructor(into: Float32Array, parts: readonly Float32Array[], early: EarlyRanges | undefined) {
    this.#into = into
    this.#parts = parts
    this.#early = early
    this.#final = parts.map(() => 0)
  }

  /** What a device is to say of its gradient. What is added afterwards is encoded afterwards, on the processor. */
  earlyOf(part: number): EarlyRanges | undefined {
    if (this.#early === undefined) return undefined
    const { ranges } = this.#early
    return {
      ranges,
      onFinal: (index) => {
        this.#final[part] = index + 1
        this.#giveOut()
      },
    }
  }

  #giveOut(): void {
    const { ranges, onFinal } = this.#early ?? { ranges: [], onFinal: () => undefined }
    for (const all = Math.min(...this.#final); this.#given < all;) {
      const range = ranges[this.#given]
      if (range === undefined) return
      addInto(this.#into, this.#parts, range)
      this.#given++
      onFinal(this.#given - 1)
    }
  }

  /** What was not handed out, from the gradients that were computed in the end. */
  finish(gradients: readonly Float32Array[]): void {
    const ranges = this.#early?.ranges ?? [{ start: 0, end: this.#into.length }]
    for (const range of ranges.slice(this.#given)) addInto(this.#into, gradients, range)
  }
}

function addInto(into: Float32Array, [first, ...others]: readonly Float32Array[], { start, end }: FloatRange): void {
  if (first === undefined) throw new Error('internal: a gradient of no device')
  const sum = into.subarray(start, end)
  sum.set(first.subarray(start, end))
  for (const other of others) add(sum, other.subarray(start, end))
}

function add(into: Float32Array, from: Float32Array): void {
  for (let i = 0; i < into.length; i++) into[i] = (into[i] ?? 0) + (from[i] ?? 0)
}
