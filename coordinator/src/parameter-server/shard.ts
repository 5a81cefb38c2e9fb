// One key range of the parameter server: its parameters, its optimizer state, its part of the open sum. Computes what
// it is told, in exact f32; which pushes count and when they become a version is decided elsewhere (run/leases.ts).
import { nextVersion, type UpdateRule } from '@starling-grid/model'
import { createOptimizerState, meanGradient, type OptimizerState } from '@starling-grid/shaders'
import { addPush } from './add-push.ts'
import { compensate } from './compensate.ts'
import type { ServerMemory } from './memory.ts'
import { blockSquares, type KeyRange, layoutOfRange } from './ranges.ts'

export type ShardCommand =
  /** what the first version and the first slots hold is the head now */
  | { readonly type: 'load'; readonly step: number; readonly scalars: Float64Array }
  /**
   * the push in `gradient`, corrected for the versions between its base and the head → Σ squares of its blocks, where
   * late pushes are compensated; `first`: of the open sum
   */
  | {
      readonly type: 'prepare'
      readonly targets: number
      readonly head: number
      readonly base: number
      readonly strength: number
      readonly first: boolean
    }
  /** the open sum takes the push, its trained part times `factor`; `first`: there is none yet */
  | { readonly type: 'accumulate'; readonly factor: number; readonly first: boolean }
  /** the open sum becomes the mean over the targets → Σ squares of its blocks */
  | { readonly type: 'mean'; readonly targets: number }
  /** one optimizer step with `factor` times the mean, out of place → the step's number, then the optimizer's scalars */
  | { readonly type: 'apply'; readonly factor: number; readonly from: number; readonly to: number }

/** `rounds`: the optimizer is the outer one, and statistics follow the mean difference of rounds. */
export interface ShardRule extends Pick<UpdateRule, 'layout' | 'optimizer'> {
  readonly rounds?: boolean
}

export interface ShardParts {
  readonly rule: ShardRule
  readonly range: KeyRange
  readonly memory: ServerMemory
}

const NOTHING = new Float64Array(0)
const NO_STATE: OptimizerState = { step: 0, scalars: NOTHING, slots: [] }

export class Shard {
  readonly #rule: ShardRule
  readonly #trained: number
  readonly #versions: readonly Float32Array[]
  readonly #gradient: Float32Array
  readonly #sum: Float32Array
  readonly #square: Float32Array | undefined
  readonly #squareAtHead: Float32Array | undefined
  #state: OptimizerState
  #spare: OptimizerState

  constructor({ rule: { layout, optimizer, rounds = false }, range, memory }: ShardParts) {
    const own = layoutOfRange(layout, range)
    const part = (vector: Float32Array): Float32Array => vector.subarray(range.start, range.start + own.total)
    const trained = (vector: Float32Array): Float32Array =>
      vector.subarray(Math.min(range.start, layout.trained), Math.min(range.end, layout.trained))
    this.#rule = { layout: own, optimizer, rounds }
    this.#trained = own.trained
    this.#versions = memory.versions.map(part)
    this.#gradient = part(memory.gradient)
    this.#sum = part(memory.sum)
    this.#square = memory.square && trained(memory.square)
    this.#squareAtHead = memory.squareAtHead && trained(memory.squareAtHead)
    const [current, next] = memory.slots.map((slots): OptimizerState => ({
      ...createOptimizerState(optimizer, 0),
      slots: slots.map(trained),
    }))
    if (current === undefined || next === undefined)
      throw new Error('internal: a parameter server has two optimizer states')
    this.#state = current
    this.#spare = next
  }

  run(command: ShardCommand): Float64Array {
    switch (command.type) {
      case 'load':
        return this.#load(command)
      case 'prepare':
        return this.#prepare(command)
      case 'accumulate':
        return this.#accumulate(command)
      case 'mean':
        meanGradient(this.#sum, command.targets, this.#sum)
        return blockSquares(this.#sum.subarray(0, this.#trained))
      case 'apply':
        return this.#apply(command)
      default:
        command satisfies never
        return NOTHING
    }
  }

  #load({ step, scalars }: Extract<ShardCommand, { type: 'load' }>): Float64Array {
    this.#state.step = step
    this.#state.scalars.set(scalars)
    return NOTHING
  }

  #prepare({ targets, head, base, strength, first }: Extract<ShardCommand, { type: 'prepare' }>): Float64Array {
    const [sum, square] = [this.#gradient.subarray(0, this.#trained), this.#square]
    if (square === undefined) return raise('only a parameter server that compensates corrects pushes')
    if (first) this.#squareAtHead?.set(square)
    compensate(sum, { head: this.#version(head), base: this.#version(base), square }, { targets, strength })
    return blockSquares(sum)
  }

  #accumulate({ factor, first }: Extract<ShardCommand, { type: 'accumulate' }>): Float64Array {
    if (first) this.#sum.fill(0)
    addPush(this.#sum, this.#gradient, { trained: this.#trained, weights: { gradient: factor, statistics: 1 } })
    return NOTHING
  }

  #apply({ factor, from, to }: Extract<ShardCommand, { type: 'apply' }>): Float64Array {
    const mean = this.#sum
    if (factor === 0) mean.fill(0, 0, this.#trained) // a sum that overflowed moves nothing: ∞ · 0 would be NaN
    else if (factor < 1) for (let i = 0; i < this.#trained; i++) mean[i] = Math.fround((mean[i] ?? 0) * factor)
    this.#step(this.#version(from), mean, this.#version(to))
    ;[this.#state, this.#spare] = [this.#spare, this.#state]
    return Float64Array.of(this.#state.step, ...this.#state.scalars)
  }

  // from (range,), mean (range,) → to (range,)
  #step(from: Float32Array, mean: Float32Array, to: Float32Array): void {
    const { layout, optimizer, rounds } = this.#rule
    const before = { parameters: from, optimizerState: this.#state }
    const after = { parameters: to, optimizerState: this.#spare }
    if (!rounds) return nextVersion({ layout, optimizer }, before, mean, after)
    // The inner optimizer's state is the members' own: none is here.
    nextVersion(
      { layout, optimizer, outer: optimizer },
      { ...before, optimizerState: NO_STATE, outerState: this.#state },
      mean,
      { ...after, optimizerState: NO_STATE, outerState: this.#spare },
      'round',
    )
  }

  #version(index: number): Float32Array {
    return this.#versions[index] ?? raise(`the parameter server keeps no version ${index}`)
  }
}

function raise(what: string): never {
  throw new Error(`internal: ${what}`)
}
