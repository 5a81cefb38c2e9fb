// A member's side of the exchange of its steps: what it puts in, whole or bucket by bucket, with what encoding lost of
// its assignments before, and the sums that come out. Independent of links, of fetching, or of what the coordinator
// wants.
import type { Clock, Frame, GradientEncoding, Manifest, StepRecord, VersionRef } from '@starling-grid/protocol'
import type { Feedback } from '../codec/encoding.ts'
import type { Batches } from '../data/batch.ts'
import type { FloatRange } from '../floats.ts'
import type { LocalRounds } from '../local/local-round.ts'
import { mayContributeEarly } from '../member/early-contribution.ts'
import type { MemberCore } from '../member/member-state.ts'
import type { LocalVersion } from '../recovery/local-version.ts'
import { normOf } from '../reduce/slice-norms.ts'
import type { EarlyBuckets } from './assignment-work.ts'
import { EncodeRequests } from './encode-requests.ts'
import { GenerationSteps, type GenerationStepsParts } from './generation-steps.ts'
import { gradientBuckets } from './gradient-buckets.ts'
import { Residual } from './residual.ts'
import type { StepStanding } from './step-reduces.ts'

export interface StepExchangeParts extends GenerationStepsParts {
  readonly clock: Clock
  readonly core: MemberCore
  readonly held: LocalVersion
  readonly batches: Batches
  /** in jobs with local rounds */
  readonly rounds: LocalRounds | undefined
  readonly encoding: GradientEncoding
}

export class StepExchange {
  readonly #parts: StepExchangeParts
  readonly #steps: GenerationSteps
  /** of encodings that lose something */
  readonly #residual: Residual | undefined
  readonly #encodes: EncodeRequests | undefined
  /** undefined: the gradient is too small to be worth several */
  readonly #buckets: readonly FloatRange[] | undefined

  constructor(parts: StepExchangeParts) {
    this.#parts = parts
    this.#residual = parts.encoding === 'f32' ? undefined : new Residual(parts.held.layout.total)
    this.#encodes = parts.encoding === 'f32' ? undefined : new EncodeRequests(parts.encoding, parts.clock)
    const buckets = gradientBuckets(parts.held.layout)
    this.#buckets = buckets.length > 1 ? buckets : undefined
    this.#steps = new GenerationSteps({
      forward: parts.forward,
      onSum: (sum) => {
        this.#residual?.completed()
        parts.rounds?.summed()
        return parts.onSum(sum)
      },
    })
  }

  /** Resolves when every sum and manifest of the step arrived; never, when the generation ends before. */
  get reduced(): GenerationSteps['reduced'] {
    return this.#steps.reduced
  }

  /** Before the first frame of a generation can come. `roundBuckets`: of a local round's share. */
  open(generation: number, roundBuckets: readonly FloatRange[] | undefined): void {
    const {
      core: { ring },
      held,
      encoding,
    } = this.#parts
    if (ring === undefined) return
    const [size, exchange] = [ring.members.length, ring.exchange?.type ?? 'ring']
    const buckets = (ring.kind === 'round' ? roundBuckets : undefined) ?? this.#buckets
    if (this.#buckets) this.#encodes?.open({ exchange, world: { rank: ring.rank, size }, buckets: this.#buckets })
    this.#steps.open(
      {
        generation,
        rank: ring.rank,
        size,
        weights: ring.weights,
        harmless: this.#harmless,
        length: held.layout.total,
        encoding,
        exchange,
        ...(buckets ? { buckets } : {}),
      },
      ring.target.v + 1,
    )
  }

  /** R3: what is under way is dropped. */
  halt(): void {
    this.#steps.halt()
    this.#residual?.halt()
    this.#parts.rounds?.halt()
  }

  /** R10: the step belongs to the version that is held now. */
  committed(version: VersionRef, kind: StepRecord['kind']): void {
    this.#residual?.swap(version, kind)
    this.#parts.rounds?.committed(version, kind)
  }

  /** `share`: Σ gradients or a round's difference, which stays as it is until the step or the generation is over. */
  contribute(step: number, manifest: Manifest, assignment: Float32Array): void {
    this.#steps.contribute(step, assignment, manifest, this.#feedback)
  }

  /** One bucket of a local round's share, before the rest of it is known. */
  contributeRoundBucket = (step: number, bucket: number, assignment: Float32Array): void =>
    this.#steps.contributeBucket(step, bucket, assignment, { feedback: this.#feedback })

  /** Takes the buckets of this member's gradient as backward finishes them; undefined: all at once, with `computed`. */
  bucketsOf = (generation: number, step: number): EarlyBuckets | undefined => {
    const { core } = this.#parts
    const feedback = this.#feedback
    const onFinal: EarlyBuckets['onFinal'] = (bucket, gradient, encoded) => {
      if (mayContributeEarly(core, generation, step))
        this.#steps.contributeBucket(step, bucket, gradient, { feedback, encoded })
    }
    const encode = this.#residual && this.#encodes?.order(this.#residual.residualEpoch)
    return this.#buckets && { ranges: this.#buckets, onFinal, ...(encode ? { encode } : {}) }
  }

  /** @throws GridError or RankFailure: what came for a step does not fit */
  accept(frame: Frame, from: number | undefined): void {
    this.#steps.accept(frame, from)
  }

  /** What came of a step, and from which ranks more is to come. */
  standing(step: number): StepStanding {
    return this.#steps.standing(step)
  }

  get #feedback(): Feedback | undefined {
    const { core, held } = this.#parts
    return held.version && this.#residual?.from(held.version, core.ring?.kind ?? 'ring')
  }

  /** A share up to which the mean of the step's gradients is no longer than the parameters are. */
  #harmless = (step: number): number => {
    const { core, held, batches } = this.#parts
    return (
      (core.ring?.plan.get(step)?.blocks.length ?? 0) *
      batches.blockTargets *
      normOf(held.parameters, 0, held.parameters.length)
    )
  }
}
