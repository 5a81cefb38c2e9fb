// A member at its part of one local round, as the protocol sees it: which blocks it learns from (R12), what it says of
// them (A7), and when fragments of its share may leave (R9). What is learned is local-round.ts.
import type { FloatRange } from '../floats.ts'
import type { HeldVersion } from '../recovery/held-version.ts'
import { mayContributeEarly } from './early-contribution.ts'
import type { LocalRounds } from './local-round.ts'
import type { MemberCore } from './member-state.ts'
import type { ShareResult } from './share-sum.ts'
import { nextBlocksOf } from './share.ts'

export interface RoundWorkParts {
  readonly core: MemberCore
  readonly held: HeldVersion
  readonly rounds: LocalRounds
  /** One bucket of the share enters the exchange before the rest. */
  contributeBucket(step: number, bucket: number, share: Float32Array): void
}

interface StepOrder {
  readonly gen: number
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
  compute = async ({ gen, step }: StepOrder): Promise<ShareResult | undefined> => {
    const { core, held, rounds } = this.#parts
    const current = (): boolean => core.ring?.gen === gen && core.ring.stage === 'running'
    if (held.version === undefined) throw new Error('internal: a round without a version')
    const blocks = nextBlocksOf(core, { gen, step, most: Number.POSITIVE_INFINITY, blockMs: 0 })
    if (blocks === 'over' || blocks === 'wait') return undefined
    const share = blocks === 'sealed' ? [] : blocks
    const result = await rounds.run({
      base: held.version,
      parameters: held.parameters,
      blocks: share,
      current,
      onLearned: ({ base, blocks: learned }) => {
        core.consumed = { base, blocks: [...learned] }
      },
      onFragment: (fragment) => this.#send({ gen, step }, fragment),
    })
    return result === undefined || !this.#isSealed({ gen, step }) ? undefined : { ...result, blocks: share }
  }

  /**
   * From the first fragment on the share can neither lose blocks nor get any (R12). What may not leave now leaves with
   * the rest.
   */
  #send(order: StepOrder, fragment: number): void {
    const { core, rounds, contributeBucket } = this.#parts
    const { fragments = [] } = rounds
    if (!this.#isSealed(order) || !mayContributeEarly(core, order.gen, order.step)) return
    const first = fragments.slice(0, fragment).reduce((sum, { length }) => sum + length, 0)
    for (const i of (fragments[fragment] ?? []).keys()) contributeBucket(order.step, first + i, rounds.contribution)
  }

  #isSealed(order: StepOrder): boolean {
    return nextBlocksOf(this.#parts.core, { ...order, most: 0, blockMs: 0 }) === 'sealed'
  }
}
