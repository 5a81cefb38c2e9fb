// A member's part of one generation: its exchange and the gradient in flight.
import { type BlockId, digest, GridError, type MemberId, unpackFrame } from '@starling-grid/protocol'
import {
  type MemberCore,
  type MemberEffect,
  type MemberInput,
  type MemberGeneration,
} from '@starling-grid/volunteer/member'
import { type Addressed, StepReduces, type StepStanding } from '@starling-grid/volunteer/testing'
import { plus } from '../world/history.ts'
import type { Context } from './context.ts'

/** Two halves, the later one first, as backward finishes them. */
function bucketsOf(length: number): { readonly start: number; readonly end: number }[] {
  const half = length >> 1
  return [
    { start: half, end: length },
    { start: 0, end: half },
  ].filter(({ start, end }) => end > start)
}

type Contribution = Extract<MemberEffect, { type: 'contribute' }>
type Refusal = Pick<Extract<MemberInput, { type: 'trouble' }>, 'code' | 'message'>

export class RingWork {
  readonly generation: number
  readonly #context: Context
  readonly #exchange: StepReduces
  readonly #view: MemberGeneration
  /** of off-ring members, as fetched (A1) */
  #offRing: { readonly id: number; readonly sum: Float32Array } | undefined
  /** of the step in flight, that left before the rest of it was computed */
  earlyBuckets = 0
  /** the step whose end was already told */
  #told = 0

  constructor(context: Context, core: MemberCore) {
    const { ring } = core
    if (ring === undefined) throw new Error('internal: no generation to work in')
    this.#context = context
    this.#view = ring
    this.generation = ring.generation
    const { length } = context.history
    const shape = {
      generation: ring.generation,
      rank: ring.rank,
      size: ring.members.length,
      length,
      buckets: bucketsOf(length),
      ...(ring.exchange ? { exchange: ring.exchange.type } : {}),
    }
    this.#exchange = new StepReduces(shape, ring.target.v + 1)
  }

  /** The first bucket of an assignment whose blocks are all begun. */
  contributeEarly(step: number, blocks: readonly BlockId[]): Addressed[] {
    this.earlyBuckets++
    return this.#exchange.at(step).contributeBucket(0, this.#gradient(blocks))
  }

  contribute({ step, manifest }: Contribution): Addressed[] {
    const offRing = this.#view.flight?.offRing?.blocks ?? []
    return this.#exchange.contribute(
      step,
      this.#gradient(manifest.blocks.filter((block) => !offRing.includes(block))),
      manifest,
    )
  }

  standing(step: number): StepStanding {
    return this.#exchange.standing(step)
  }

  memberAt(rank: number): MemberId | undefined {
    return this.#view.members[rank]
  }

  /** Frames to the member in this place go through the coordinator (R18). */
  isRelayed(rank: number): boolean {
    return this.#view.relayed.some((pair) => pair.includes(rank) && pair.includes(this.#view.rank))
  }

  /** Of this member's blocks, with the sum of off-ring members if the assignment has it (A1). */
  #gradient(own: readonly BlockId[]): Float32Array {
    const gradient = this.#context.history.gradient(own)
    const offRing = this.#view.flight?.offRing
    if (offRing === undefined) return gradient
    if (this.#offRing?.id !== offRing.id)
      throw new Error(`internal: the sum ${offRing.id} of off-ring members is not here`)
    return plus(gradient, this.#offRing.sum)
  }

  /** One at a time, as in Generation: false while an earlier one waits for its assignment. */
  stageOffRing(offRing: { readonly id: number; readonly sum: Float32Array }): boolean {
    const earlier = this.#offRing && this.#view.offRingSums.get(this.#offRing.id)
    if (earlier !== undefined && earlier.stage !== 'done') return false
    this.#offRing = offRing
    return true
  }

  isFor(bytes: Uint8Array): boolean {
    return unpackFrame(bytes).generation === this.generation
  }

  accept(from: MemberId, bytes: Uint8Array): { readonly forward: Addressed[]; readonly refused?: Refusal } {
    const frame = unpackFrame(bytes)
    try {
      return { forward: this.#exchange.accept(frame, this.#view.members.indexOf(from)) }
    } catch (error) {
      if (!(error instanceof GridError)) throw error
      this.#context.violations.report('refusal', `a frame of step ${frame.step} is refused: ${error.message}`)
      return { forward: [], refused: { code: error.code, message: error.message } }
    }
  }

  /** The end of the step in flight, told once. */
  whole(): MemberInput | undefined {
    const reduce = this.#exchange.finished
    const step = this.#view.flight?.step
    if (reduce === undefined || step === undefined || step === this.#told) return undefined
    this.#told = step
    if (this.#view.exchange?.type === 'direct' && this.#view.members.length > 1) this.#context.counts.directSteps++
    return {
      type: 'reduced',
      generation: this.generation,
      step,
      manifests: reduce.manifests,
      gradDigest: digest(new Uint8Array(reduce.sum.buffer)),
    }
  }

  takeSum(): Float32Array | undefined {
    const sum = this.#exchange.finished?.sum
    this.earlyBuckets = 0
    this.#exchange.advance()
    return sum
  }
}
