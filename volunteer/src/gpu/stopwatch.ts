// Times variants of one call on an adapter. Knows nothing of tables and of others.
import { type AdapterDescription, systemClock } from '@starling-grid/protocol'
import { type Candidate, type KernelCall, variantName } from '@starling-grid/shaders'
import type { VariantSelector } from '../graph/choice.ts'
import { flopsOf } from '../graph/flops.ts'
import type { Tensor } from '../graph/tensor.ts'
import type { VariantTiming } from './measuring-order.ts'

/** A timing shorter than this says more about the queue than about the kernel. */
const SHORTEST_TIMING_MS = 4
/** Rough: what the first repeats are chosen by. */
const FLOPS_PER_MS = { software: 4e6, gpu: 1e9 }
const MOST_REPEATS = 64
/** Best of so many; a variant that is this much slower than the best in the first is dropped. */
const ROUNDS = 3
const HOPELESS = 1.5

/** Calls made ready to run on the device. */
export interface Trial {
  /** runs them once; milliseconds */
  run(): Promise<number>
  destroy(): void
}

export type PrepareTrial = (calls: readonly KernelCall<Tensor>[], choose: VariantSelector) => Promise<Trial>

interface StopwatchParts {
  readonly adapter: Pick<AdapterDescription, 'software'>
  readonly capacity: number
  readonly prepare: PrepareTrial
}

/** Times variants of one call, all with as many repeats as the first of them showed to be enough. */
export class Stopwatch {
  readonly #call: KernelCall<Tensor>
  readonly #parts: StopwatchParts
  readonly #warmingMs: number
  #repeats: number
  /** ms of one call */
  #best = Number.POSITIVE_INFINITY

  constructor(call: KernelCall<Tensor>, parts: StopwatchParts, warmingMs: number) {
    const { adapter, capacity } = parts
    // Planned for as a GPU or not: what computes is what it is.
    const perMs = adapter.software ? FLOPS_PER_MS.software : FLOPS_PER_MS.gpu
    this.#call = call
    this.#parts = parts
    this.#warmingMs = warmingMs
    this.#repeats = Math.min(MOST_REPEATS, Math.ceil((SHORTEST_TIMING_MS * perMs) / flopsOf(call, capacity)))
  }

  async time(candidate: Candidate): Promise<VariantTiming> {
    let trial = await this.#prepare(candidate)
    const isFirst = this.#best === Number.POSITIVE_INFINITY
    if (isFirst && !this.#parts.adapter.software) {
      const repeats = await enoughRepeats(trial, this.#repeats, this.#warmingMs)
      if (repeats > this.#repeats) {
        this.#repeats = repeats
        trial.destroy()
        trial = await this.#prepare(candidate)
      }
    }
    const ms = (await bestOf(trial, this.#best * this.#repeats)) / this.#repeats
    trial.destroy()
    this.#best = Math.min(this.#best, ms)
    return { variant: variantName(candidate), ms }
  }

  #prepare(candidate: Candidate): Promise<Trial> {
    const calls = Array.from({ length: this.#repeats }, () => this.#call)
    return this.#parts.prepare(calls, () => ({ candidate, why: 'being measured' }))
  }
}

/** So many that a timing says something about the kernel: a GPU does up to 40 times as much as the guess. */
async function enoughRepeats(trial: Trial, guess: number, warmingMs: number): Promise<number> {
  const until = systemClock.now() + warmingMs
  await trial.run()
  let ms = await trial.run()
  while (systemClock.now() < until) ms = await trial.run()
  return Math.min(MOST_REPEATS, guess * Math.max(1, Math.ceil(SHORTEST_TIMING_MS / ms)))
}

async function bestOf(trial: Trial, best: number): Promise<number> {
  await trial.run() // software adapters compile at the first use
  let ms = await trial.run()
  for (let round = 1; round < ROUNDS && ms < HOPELESS * best; round++) ms = Math.min(ms, await trial.run())
  return ms
}
