// Σ gradients of committed steps, from a member that still has them. The chain's records hold their digests, so one
// member is enough: it cannot make them others. Asked after the steps are committed, so that no member knows before
// which ones.
import { webcrypto } from 'node:crypto'
import { hex, type MemberId, type MessageTo, PLAN_WINDOW, type VersionId } from '@starling-grid/protocol'
import type { CoordinatorClock } from '../clock.ts'
import type { SumStep } from '../run/state.ts'

/** Bytes of all sums of one question: half of what members keep of them. */
export const MOST_SUM_BYTES = 32 * 1024 * 1024
/** ms for one member to send them, before another is asked: to begin, and for its bytes on a slow home line */
const BEGIN_MS = 10_000
const BYTES_PER_MS = 1000

interface SumQuestion {
  readonly member: MemberId
  readonly steps: readonly SumStep[]
  readonly answer: (sums: readonly Float32Array[] | undefined) => void
}

/** Sums, and the member that sent them. */
export interface AnsweredSums {
  readonly member: MemberId
  readonly sums: readonly Float32Array[]
}

export interface StepSumsParts {
  readonly clock: CoordinatorClock
  /** numbers in one sum */
  readonly length: number
  send(to: MemberId, message: MessageTo<'sums-request'>): void
}

export class StepSums {
  readonly #parts: StepSumsParts
  /** an audit's and a dispute's at most */
  readonly #questions = new Set<SumQuestion>()

  constructor(parts: StepSumsParts) {
    this.#parts = parts
  }

  /** of one sum */
  get bytes(): number {
    return this.#parts.length * Float32Array.BYTES_PER_ELEMENT
  }

  /** Steps that one question may be about. */
  get most(): number {
    return Math.min(PLAN_WINDOW, Math.floor(MOST_SUM_BYTES / this.bytes))
  }

  /** Of the first of these members that has all of them, one after the other; undefined: none has. */
  async ask(
    members: readonly MemberId[],
    steps: readonly SumStep[],
    limit?: AbortSignal,
  ): Promise<AnsweredSums | undefined> {
    if (steps.length > this.most) return undefined
    for (const member of members) {
      if (limit?.aborted === true) return undefined
      const sums = await this.#askOne(member, steps)
      if (sums !== undefined) return { member, sums }
    }
    return undefined
  }

  #askOne(member: MemberId, steps: readonly SumStep[]): Promise<readonly Float32Array[] | undefined> {
    return new Promise((resolve) => {
      const answer = (sums: readonly Float32Array[] | undefined): void => {
        cancelTimer()
        this.#questions.delete(question)
        resolve(sums)
      }
      const answerMs = BEGIN_MS + (steps.length * this.bytes) / BYTES_PER_MS
      const cancelTimer = this.#parts.clock.looseTimer(answerMs, () => answer(undefined))
      const question = { member, steps, answer }
      this.#questions.add(question)
      this.#parts.send(member, { type: 'sums-request', versions: steps.map(({ version }) => version) })
    })
  }

  /** Bytes that this member was asked for; undefined: it was not asked for the sums up to this version. */
  expects(member: MemberId, version: VersionId): number | undefined {
    const question = this.#find(member, version)
    return question && question.steps.length * this.bytes
  }

  #find(member: MemberId, version: VersionId): SumQuestion | undefined {
    return [...this.#questions].find((one) => one.member === member && one.steps.at(-1)?.version.id === version)
  }

  /** All steps one after the other. False: they are not what the records say, and another member is asked. */
  async accept(member: MemberId, version: VersionId, bytes: Uint8Array): Promise<boolean> {
    const question = this.#find(member, version)
    if (question === undefined) return false
    if (bytes.byteLength !== question.steps.length * this.bytes) {
      question.answer(undefined) // it has them no more
      return false
    }
    const sums = question.steps.map((_, i) => new Uint8Array(bytes.subarray(i * this.bytes, (i + 1) * this.bytes)))
    const digests = await Promise.all(sums.map(sha256))
    const proven = question.steps.every(({ record }, i) => record.gradDigest === digests[i])
    if (this.#questions.has(question))
      question.answer(proven ? sums.map(({ buffer }) => new Float32Array(buffer)) : undefined)
    return proven
  }
}

/** In a thread of Node's pool. */
async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return hex(new Uint8Array(await webcrypto.subtle.digest('SHA-256', bytes)))
}
