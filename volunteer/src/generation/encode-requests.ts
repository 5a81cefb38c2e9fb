// What an executor is asked to encode of this member's gradient before it is read back, and with which residual of
// earlier steps (docs/decisions/0009). Whether it does is its own decision.
import type { Clock } from '@starling-grid/protocol'
import { RingCodec } from '../codec/ring-codec.ts'
import type { EncodeRequest } from '../graph/executor.ts'
import { leavingRuns, type LeavingOptions } from '../reduce/exchanges.ts'

/** Floats that are encoded to time the CPU: some 10 ms. */
const TIMED_FLOATS = 256 * 1024
const MILLION = 1e6

type LeavingPlace = Omit<LeavingOptions, 'encoding'>

export class EncodeRequests {
  readonly #encoding: EncodeRequest['encoding']
  readonly #clock: Clock
  #place: LeavingPlace | undefined
  #runs: EncodeRequest['runs'] = []
  #cpuMsPerMillion: number | undefined

  constructor(encoding: EncodeRequest['encoding'], clock: Clock) {
    this.#clock = clock
    this.#encoding = encoding
  }

  /**
   * A generation begins. Where this member keeps its rank the runs stay the same, and with them what the executor has
   * lost of them.
   */
  open(place: LeavingPlace): void {
    const previous = this.#place
    const isSame =
      previous?.exchange === place.exchange &&
      previous.world.rank === place.world.rank &&
      previous.world.size === place.world.size &&
      previous.buckets === place.buckets
    if (!isSame) this.#runs = place.world.size === 1 ? [] : leavingRuns({ ...place, encoding: this.#encoding })
    this.#place = place
  }

  /** `losses`: Residual's. Undefined: nothing leaves as it is. */
  order(residualEpoch: number): EncodeRequest | undefined {
    if (this.#runs.length === 0) return undefined
    this.#cpuMsPerMillion ??= timeCpu(this.#encoding, this.#clock)
    return { encoding: this.#encoding, runs: this.#runs, residualEpoch, cpuMsPerMillion: this.#cpuMsPerMillion }
  }
}

/** The second time: the first compiles. */
function timeCpu(encoding: EncodeRequest['encoding'], clock: Clock): number {
  const codec = new RingCodec(encoding)
  const [values, residual] = [
    Float32Array.from({ length: TIMED_FLOATS }, (_, i) => Math.sin(i)),
    new Float32Array(TIMED_FLOATS),
  ]
  codec.encode(values, residual, false)
  const start = clock.now()
  codec.encode(values, residual, false)
  return ((clock.now() - start) * MILLION) / TIMED_FLOATS
}
