// The all-reduce of one step as a machine of events: frames in, frames out, no I/O, no clock. What the ring
// (ring-reduce.ts) and the direct exchange (direct-reduce.ts) have in common: a member's contribution, and the refusal
// of frames that fit nowhere. What frames hold is the business of step-sum.ts; each way adds how they travel.
import type { Frame, Manifest } from '@starling-grid/protocol'
import type { Feedback } from '../codec/encoding.ts'
import { type ReduceProgress, type StepSum, unexpected } from './step-reduce.ts'
import type { StepSumBuilder } from './step-sum.ts'

/** A frame and the rank of the member that gets it. */
export interface Addressed {
  readonly to: number
  readonly frame: Frame
}

/**
 * @example for (const { to, frame } of reduce.contribute(gradient, manifest)) await links[to].send(packFrame(frame))
 */
export abstract class Reduce implements StepSum {
  readonly #sum: StepSumBuilder

  constructor(sum: StepSumBuilder) {
    this.#sum = sum
  }

  /** All sums and all manifests are here. */
  get done(): boolean {
    return this.#sum.done
  }

  get progress(): ReduceProgress {
    return this.#sum.progress
  }

  /** Σ over the members, equal bytes on all of them. Only when done. */
  get sum(): Float32Array {
    return this.#sum.sum
  }

  /** In the order of ranks. Only when done. */
  get manifests(): readonly Manifest[] {
    return this.#sum.manifests
  }

  /** Ranks from which frames are to come. */
  abstract get waitsFor(): number[]

  /**
   * Adds this member's contribution of one bucket, once, as soon as it is known: `gradient` is the whole vector, of
   * which the bucket's run is final. `feedback`: read, and its `next` written, of encodings that lose something; the
   * same for all buckets of a step. `encoded`: its runs that leave as they are (leaving-runs.ts), as bytes instead of
   * floats. The rest is as with `contribute`.
   */
  abstract contributeBucket(
    bucket: number,
    gradient: Float32Array,
    feedback?: Feedback,
    encoded?: readonly Uint8Array[],
  ): Addressed[]

  /**
   * Adds what is left of this member's contribution, and its manifest, once. Neither the gradient may change nor the
   * frames' payloads until the reduce is over: they are views, not copies.
   * @throws GridError 'gradient-not-finite' (the gradient, or a sum that overflowed), 'message-malformed' or
   * 'message-too-large' (the manifest); RankFailure as `accept`. The reduce is over then
   */
  contribute(gradient: Float32Array, manifest: Manifest, feedback?: Feedback): Addressed[] {
    const left = (): Addressed[] =>
      this.#sum.own.left.flatMap((bucket) => this.contributeBucket(bucket, gradient, feedback))
    const [own, frames] = this.#sum.contribute(manifest, left)
    return [...this.ownManifest(own), ...frames]
  }

  /**
   * Takes a frame of the member of rank `from`, in any order, also before `contribute`; repeated frames change nothing.
   * Returns what goes on to others.
   * @throws GridError 'message-malformed', 'message-unexpected', 'message-too-large' or 'gradient-not-finite': `from`
   * sent what does not fit, and nothing changed. RankFailure 'gradient-not-finite' or 'gradient-outlier': of all that
   * came for a part, what the member of rank `rank` sent makes no sum. The reduce is over then
   */
  accept(frame: Frame, from: number): Addressed[] {
    this.#sum.requireStep(frame)
    this.requireWay(frame, from)
    switch (frame.type) {
      case 'partial':
        return this.onPartial(frame, from)
      case 'reduced':
        return this.onReduced(frame, from)
      case 'manifest':
        return this.onManifest(frame, from)
      default:
        throw unexpected(`expected a partial, reduced or manifest frame, got ${frame.type}`)
    }
  }

  /**
   * Around the ring there is one sender, of which the caller made sure (frame-fate.ts). @throws GridError
   * 'message-malformed'
   */
  protected requireWay(_frame: Frame, _from: number): void {}

  /** To the members that get this member's manifest from it. */
  protected abstract ownManifest(frame: Frame): Addressed[]
  protected abstract onPartial(frame: Frame, from: number): Addressed[]
  protected abstract onReduced(frame: Frame, from: number): Addressed[]
  protected abstract onManifest(frame: Frame, from: number): Addressed[]
}
