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
import { formOf, takeBlocks } from '@starling-grid/volunteer/testing'
import type { MemberCore, MemberEffect, MemberInput, ControlMessage } from '../src/member/member-state.ts'
import { createMember, react } from '../src/member/member.ts'

export const ZERO = genesis(jobId('test'), 'model', 1)
export const [A, B] = [memberId('a'), memberId('b')]
export const DIGEST = sha256Name('0'.repeat(64))

export type EffectOf<T extends MemberEffect['type']> = Extract<MemberEffect, { type: T }>

/** A member, what it did last, and the orders of a coordinator ready-made. */
export class Bench {
  readonly core: MemberCore
  effects: MemberEffect[] = []

  constructor(replayMost = 1) {
    this.core = createMember(A, ZERO, replayMost)
  }

  tell(input: MemberInput): this {
    this.effects = react(this.core, input)
    return this
  }

  order(order: ControlMessage): this {
    return this.tell({ type: 'order', order })
  }

  freeze(generation: number, fence = 1): this {
    return this.order({ type: 'freeze', fence, generation, committed: 0 })
  }

  form(generation: number, changed: Partial<MessageTo<'form'>> = {}): this {
    return this.order(formOf([A], ZERO, { generation, ...changed }))
  }

  start(generation: number, plan: readonly PlanStep[], after = this.core.version ?? ZERO): this {
    return this.order({ type: 'start', fence: 1, generation, after, plan: [...plan] })
  }

  /** Alone in a running generation, at version 0. */
  running(plan: readonly PlanStep[] = planOf(1, 2), members: readonly MemberId[] = [A]): this {
    this.freeze(1).form(1, { members: [...members], weights: members.map(() => 1) })
    this.tell({ type: 'links-open', generation: 1 }).tell({ type: 'state-fetched', generation: 1, version: ZERO })
    return this.start(1, plan)
  }

  /** Begins the whole assignment of the step that is asked for, and seals it. */
  begin(): Manifest['blocks'] {
    const [compute] = this.did('compute')
    assert.ok(compute)
    const { generation, step } = compute
    while (takeBlocks(this.core, { generation, step, most: Number.POSITIVE_INFINITY, blockMs: 1 }) !== 'complete');
    return compute.blocks
  }

  /** Carries out the computation that is asked for, alone. */
  compute(): this {
    const [compute] = this.did('compute')
    assert.ok(compute)
    const manifest = manifestOf(this.begin())
    this.tell({ type: 'computed', generation: compute.generation, step: compute.step, manifest, finite: true })
    return this.tell({
      type: 'reduced',
      generation: compute.generation,
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

export function recordOf(v: number, generation: number): StepRecord {
  return {
    v,
    generation,
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
