// A member at its part of one local round, as the protocol sees it. Which blocks it learns from (R12), what it says of
// them (A7), and when fragments of its assignment may leave (R9). What is learned is local-round.ts.
import type { BlockId, Consumed, VersionRef } from '@starling-grid/protocol'
import type { FloatRange } from '../floats.ts'
import type { BatchSums } from '../graph/executor.ts'
import { mayContributeEarly, nextBlocks, type StepId } from '../member/assignment.ts'
import type { MemberCore, MemberInput } from '../member/member-state.ts'
import type { LocalVersion } from '../recovery/local-version.ts'
import type { FragmentStream } from './fragment-stream.ts'

export interface RoundOrder {
  /** the version that the round starts from, and its parameters */
  readonly base: VersionRef
  readonly parameters: Float32Array
  readonly blocks: readonly BlockId[]
  /** to make of them; absent: those of the job */
  readonly innerSteps?: number
  /** where the schedule of the learning rate goes on; absent: as many of the job's steps as versions were made */
  readonly fromStep?: number
  /** factor of the learning rate of these inner steps; absent: 1 */
  readonly rate?: number
  /** raised when the generation ends, and the rest of the round with it */
  readonly signal: AbortSignal
  /** raised when the round is to end with what it has learned until then; absent: never */
  readonly cut?: AbortSignal
  /** what the private copy has learned from now: told at the next ballot */
  onLearned(consumed: Consumed): void
  /**
   * A fragment of `contribution` stays as it is from now on; absent: who contributes it waits for the end of the round.
   */
  onFragment?(fragment: number): void
}

export interface RoundResult {
  /** of the order's blocks, so many of the first: all, but where the round was cut */
  readonly learned: number
  readonly samples: number
  readonly sums: BatchSums
  readonly finite: boolean
}

/** The rounds of one member (local-round.ts). */
export interface InnerSteps {
  /** ranges of the assignment that leave one by one; undefined: it leaves whole */
  readonly fragments: FragmentStream['fragments'] | undefined
  run(order: RoundOrder): Promise<RoundResult | undefined>
}

export interface RoundWorkParts {
  readonly core: Readonly<MemberCore>
  readonly held: LocalVersion
  readonly rounds: InnerSteps
  /** of the generation */
  readonly signal: AbortSignal
  tell(input: MemberInput): void
  /** One bucket of the assignment enters the exchange before the rest, if it may. */
  contributeBucket(at: StepId, bucket: number): void
}

export class RoundWork {
  readonly #parts: RoundWorkParts
  /** what members contribute one by one: the runs of all fragments, one after the other; undefined: all at once */
  readonly buckets: readonly FloatRange[] | undefined

  constructor(parts: RoundWorkParts) {
    this.#parts = parts
    this.buckets = parts.rounds.fragments?.flat()
  }

  /** Σ targets · (base − local) into the rounds' `contribution`. Undefined: the generation ended before. */
  async compute(at: StepId): Promise<(RoundResult & { readonly blocks: readonly BlockId[] }) | undefined> {
    const { held, rounds, signal, tell } = this.#parts
    if (held.version === undefined) throw new Error('internal: a round without a version')
    const blocks = this.#begin(at)
    if (blocks === undefined) return undefined
    const result = await rounds.run({
      base: held.version,
      parameters: held.parameters,
      blocks,
      signal,
      onLearned: ({ base, blocks: learned }) =>
        tell({ type: 'learned', generation: at.generation, consumed: { base, blocks: [...learned] } }),
      onFragment: (fragment) => this.#send(at, fragment),
    })
    return result === undefined || !this.#seal(at) ? undefined : { ...result, blocks }
  }

  #begin(at: StepId): readonly BlockId[] | undefined {
    const { core, tell } = this.#parts
    const blocks = nextBlocks(core, at, Number.POSITIVE_INFINITY)
    if (blocks === 'complete') return this.#seal(at) ? [] : undefined
    if (blocks === 'over' || blocks === 'wait') return undefined
    tell({ type: 'begin', ...at, blocks, blockMs: 0 })
    return blocks
  }

  /**
   * From the first fragment on the assignment can neither lose blocks nor get any (R12). What may not leave now leaves
   * with the rest.
   */
  #send(at: StepId, fragment: number): void {
    const { core, rounds, contributeBucket } = this.#parts
    const { fragments = [] } = rounds
    if (!this.#seal(at) || !mayContributeEarly(core, at)) return
    const first = fragments.slice(0, fragment).reduce((sum, { length }) => sum + length, 0)
    for (const i of (fragments[fragment] ?? []).keys()) contributeBucket(at, first + i)
  }

  /** True: sealed from now on. */
  #seal(at: StepId): boolean {
    const { core, tell } = this.#parts
    if (nextBlocks(core, at, 1) !== 'complete') return false
    tell({ type: 'seal', ...at, blockMs: 0 })
    return true
  }
}
