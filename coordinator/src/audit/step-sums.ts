// Σ gradients of committed steps, from a member that still has them. The chain's records hold their digests, so one
// member is enough: it cannot make them others. Asked after the steps are committed, so that no member knows before
// which ones.
import { webcrypto } from 'node:crypto'
import {
  hex,
  type MemberId,
  type MessageTo,
  PLAN_WINDOW,
  type StepRecord,
  type VersionId,
  type VersionRef,
} from '@starling-grid/protocol'
import type { CoordinatorClock } from '../clock.ts'

/** Bytes of all sums of one question: half of what members keep of them. */
export const MOST_SUM_BYTES = 32 * 1024 * 1024
/** ms for one member to send them, before another is asked */
const ANSWER_MS = 30_000

export interface SumStep {
  readonly record: StepRecord
  readonly version: VersionRef
}

interface Question {
  readonly member: MemberId
  readonly steps: readonly SumStep[]
  readonly answer: (sums: readonly Float32Array[] | undefined) => void
}

export interface StepSumsParts {
  readonly clock: CoordinatorClock
  /** numbers in one sum */
  readonly length: number
  send(to: MemberId, message: MessageTo<'sums-request'>): void
}

export class StepSums {
  readonly #parts: StepSumsParts
  #question: Question | undefined
  #queue: Promise<unknown> = Promise.resolve()

  constructor(parts: StepSumsParts) {
    this.#parts = parts
  }

  get #bytes(): number {
    return this.#parts.length * Float32Array.BYTES_PER_ELEMENT
  }

  /** Steps that one question may be about. */
  get most(): number {
    return Math.min(PLAN_WINDOW, Math.floor(MOST_SUM_BYTES / this.#bytes))
  }

  /** Of the first of these members that has all of them; undefined: none has. */
  ask(members: readonly MemberId[], steps: readonly SumStep[]): Promise<readonly Float32Array[] | undefined> {
    const asked = this.#queue.then(() => this.#askAll(members, steps))
    this.#queue = asked
    return asked
  }

  async #askAll(members: readonly MemberId[], steps: readonly SumStep[]): Promise<readonly Float32Array[] | undefined> {
    if (steps.length > this.most) return undefined
    for (const member of members) {
      const sums = await this.#askOne(member, steps)
      if (sums !== undefined) return sums
    }
    return undefined
  }

  #askOne(member: MemberId, steps: readonly SumStep[]): Promise<readonly Float32Array[] | undefined> {
    return new Promise((resolve) => {
      const answer = (sums: readonly Float32Array[] | undefined): void => {
        cancelTimer()
        this.#question = undefined
        resolve(sums)
      }
      const cancelTimer = this.#parts.clock.looseTimer(ANSWER_MS, () => answer(undefined))
      this.#question = { member, steps, answer }
      this.#parts.send(member, { type: 'sums-request', versions: steps.map(({ version }) => version) })
    })
  }

  /** Bytes that this member was asked for; undefined: it was not asked for the sums up to this version. */
  expects(member: MemberId, version: VersionId): number | undefined {
    const question = this.#question
    if (question?.member !== member || question.steps.at(-1)?.version.id !== version) return undefined
    return question.steps.length * this.#bytes
  }

  /** All steps one after the other. False: they are not what the records say, and another member is asked. */
  async accept(member: MemberId, version: VersionId, bytes: Uint8Array): Promise<boolean> {
    const expected = this.expects(member, version)
    const question = this.#question
    if (question === undefined || expected === undefined) return false
    if (bytes.byteLength !== expected) {
      question.answer(undefined) // it has them no more
      return false
    }
    const sums = question.steps.map((_, i) => new Uint8Array(bytes.subarray(i * this.#bytes, (i + 1) * this.#bytes)))
    const digests = await Promise.all(sums.map(sha256))
    const proven = question.steps.every(({ record }, i) => record.gradDigest === digests[i])
    if (this.#question === question)
      question.answer(proven ? sums.map(({ buffer }) => new Float32Array(buffer)) : undefined)
    return proven
  }
}

/** In a thread of Node's pool. */
async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return hex(new Uint8Array(await webcrypto.subtle.digest('SHA-256', bytes)))
}
