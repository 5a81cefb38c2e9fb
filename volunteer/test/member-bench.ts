// One member at a bench: orders of a coordinator ready-made, and what it did last. Used by member.test.ts.
import assert from 'node:assert/strict'
import {
  genesis,
  jobId,
  type Manifest,
  type MemberId,
  memberId,
  type MessageFrom,
  type MessageTo,
  type PlanStep,
  sha256Name,
  type StepRecord,
  trainingBlock,
} from '@starling-grid/protocol'
import {
  createMember,
  type MemberCore,
  type MemberEffect,
  type MemberInput,
  nextBlocksOf,
  react,
  type RunOrder,
} from '@starling-grid/volunteer'

export const ZERO = genesis(jobId('test'), 'model', 1)
export const [A, B] = [memberId('a'), memberId('b')]
export const DIGEST = sha256Name('0'.repeat(64))

export type EffectOf<T extends MemberEffect['type']> = Extract<MemberEffect, { type: T }>

/** A member, what it did last, and the orders of a coordinator ready-made. */
export class Bench {
  readonly core: MemberCore
  effects: MemberEffect[] = []

  constructor(replayMost = 1) {
    this.core = createMember(A, ZERO, undefined, replayMost)
  }

  tell(input: MemberInput): this {
    this.effects = react(this.core, input)
    return this
  }

  order(order: RunOrder): this {
    return this.tell({ type: 'order', order })
  }

  freeze(gen: number, owner = 1): this {
    return this.order({ type: 'freeze', owner, gen, committed: 0 })
  }

  form(gen: number, changed: Partial<MessageTo<'form'>> = {}): this {
    return this.order({
      type: 'form',
      owner: 1,
      gen,
      members: [A],
      shares: [1],
      relayed: [],
      committed: ZERO,
      records: [],
      target: ZERO,
      sources: [],
      coordinatorHolds: true,
      modeEpoch: 0,
      kind: 'ring',
      ...changed,
    })
  }

  start(gen: number, plan: readonly PlanStep[], after = this.core.version ?? ZERO): this {
    return this.order({ type: 'start', owner: 1, gen, after, plan: [...plan] })
  }

  /** Alone in a running generation, at version 0. */
  running(plan: readonly PlanStep[] = planOf(1, 2), members: readonly MemberId[] = [A]): this {
    this.freeze(1).form(1, { members: [...members], shares: members.map(() => 1) })
    this.tell({ type: 'links-open', gen: 1 }).tell({ type: 'state-fetched', gen: 1, version: ZERO })
    return this.start(1, plan)
  }

  /** Begins the whole share of the step that is asked for, and seals it. */
  begin(): Manifest['blocks'] {
    const [compute] = this.did('compute')
    assert.ok(compute)
    for (const most of [compute.blocks.length, 0])
      nextBlocksOf(this.core, { gen: compute.gen, step: compute.step, most, blockMs: 1 })
    return compute.blocks
  }

  /** Carries out the computation that is asked for, alone. */
  compute(): this {
    const [compute] = this.did('compute')
    assert.ok(compute)
    const manifest = manifestOf(this.begin())
    this.tell({ type: 'computed', gen: compute.gen, step: compute.step, manifest, finite: true })
    return this.tell({
      type: 'reduced',
      gen: compute.gen,
      step: compute.step,
      manifests: [manifest],
      gradDigest: DIGEST,
    })
  }

  did<T extends MemberEffect['type']>(type: T): EffectOf<T>[] {
    return this.effects.filter((effect): effect is EffectOf<T> => effect.type === type)
  }

  said<T extends 'state' | 'promised' | 'held' | 'abort' | 'lease-request'>(type: T): MessageFrom<T>[] {
    return this.did('send').flatMap(({ message }) => (message.type === type ? [message as MessageFrom<T>] : []))
  }
}

export function planOf(...steps: readonly number[]): PlanStep[] {
  return steps.map((step) => ({ step, blocks: [trainingBlock(0, 2 * step), trainingBlock(0, 2 * step + 1)] }))
}

export function manifestOf(blocks: Manifest['blocks']): Manifest {
  return { blocks, samples: blocks.length, targets: blocks.length, lossSum: 1, correct: 0 }
}

export function recordOf(v: number, gen: number): StepRecord {
  return {
    v,
    gen,
    modeEpoch: 0,
    kind: 'ring',
    blocks: [trainingBlock(0, v)],
    samples: 1,
    targets: 1,
    lossSum: 1,
    correct: 0,
    gradDigest: DIGEST,
  }
}
