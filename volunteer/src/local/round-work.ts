// A member at its part of one local round, as the protocol sees it: which blocks it learns from (R12), what it says of
// them (A7), and when fragments of its assignment may leave (R9). What is learned is local-round.ts.
import type { FloatRange } from '../floats.ts'
import type { AssignmentResult } from '../generation/assignment-sum.ts'
import { nextBlocksOf } from '../member/assignment.ts'
import { mayContributeEarly } from '../member/early-contribution.ts'
import type { MemberCore } from '../member/member-state.ts'
import type { LocalVersion } from '../recovery/local-version.ts'
import type { LocalRounds } from './local-round.ts'

export interface RoundWorkParts {
  readonly core: MemberCore
  readonly held: LocalVersion
  readonly rounds: LocalRounds
  /** One bucket of the assignment enters the exchange before the rest. */
  contributeBucket(step: number, bucket: number, assignment: Float32Array): void
}

interface StepId {
  readonly generation: number
  readonly step: number
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
  compute = async ({ generation, step }: StepId): Promise<AssignmentResult | undefined> => {
    const { core, held, rounds } = this.#parts
    const current = (): boolean => core.ring?.generation === generation && core.ring.stage === 'running'
    if (held.version === undefined) throw new Error('internal: a round without a version')
    const blocks = nextBlocksOf(core, { generation, step, most: Number.POSITIVE_INFINITY, blockMs: 0 })
    if (blocks === 'over' || blocks === 'wait') return undefined
    const assignment = blocks === 'sealed' ? [] : blocks
    const result = await rounds.run({
      base: held.version,
      parameters: held.parameters,
      blocks: assignment,
      current,
      onLearned: ({ base, blocks: learned }) => {
        core.consumed = { base, blocks: [...learned] }
      },
      onFragment: (fragment) => this.#send({ generation, step }, fragment),
    })
    return result === undefined || !this.#isSealed({ generation, step }) ? undefined : { ...result, blocks: assignment }
  }

  /**
   * From the first fragment on the assignment can neither lose blocks nor get any (R12). What may not leave now leaves
   * with the rest.
   */
  #send(order: StepId, fragment: number): void {
    const { core, rounds, contributeBucket } = this.#parts
    const { fragments = [] } = rounds
    if (!this.#isSealed(order) || !mayContributeEarly(core, order.generation, order.step)) return
    const first = fragments.slice(0, fragment).reduce((sum, { length }) => sum + length, 0)
    for (const i of (fragments[fragment] ?? []).keys()) contributeBucket(order.step, first + i, rounds.contribution)
  }

  #isSealed(order: StepId): boolean {
    return nextBlocksOf(this.#parts.core, { ...order, most: 0, blockMs: 0 }) === 'sealed'
  }
}
