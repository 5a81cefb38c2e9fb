// What a member is about to become: a fetched state or a reduced sum waits here until the protocol says adopt or apply,
// which then happens in one piece (I6, R10).
import { sameVersion, type StepRecord, type VersionRef } from '@starling-grid/protocol'
import type { StepWitness } from '../host.ts'
import { type CatchUpEffect, type CatchUpSources, catchUpBytes } from '../recovery/catch-up.ts'
import type { LocalVersion, VersionState } from '../recovery/local-version.ts'

export interface StagingParts {
  readonly held: LocalVersion
  /** version 0 and the seed that makes it */
  readonly genesis: VersionRef
  readonly seed: number
  /** of audits */
  readonly witness?: StepWitness | undefined
}

export class Staging {
  readonly #parts: StagingParts
  /** Σ gradients that the next `apply` uses */
  #sum: Float32Array | undefined
  #state: VersionState | undefined

  constructor(parts: StagingParts) {
    this.#parts = parts
  }

  stageSum(sum: Float32Array): void {
    this.#sum = sum
  }

  /**
   * Brings the target of a ballot here (R7). Version 0 needs no source: the seed makes it. @throws what catchUpBytes
   * throws
   */
  async fetch(effect: CatchUpEffect, sources: CatchUpSources, signal: AbortSignal): Promise<void> {
    const { held, genesis } = this.#parts
    this.#state = undefined
    if (effect.type === 'fetch-state' && sameVersion(effect.target, genesis)) return
    const bytes = await catchUpBytes(effect, sources, signal)
    if (signal.aborted) return
    if (effect.type === 'fetch-state') this.#state = held.decode(bytes, effect.target)
    else this.#sum = new Float32Array(bytes.buffer)
  }

  adopt(version: VersionRef): void {
    const { held, seed } = this.#parts
    if (this.#state === undefined) held.adoptInitial(version, seed)
    else this.#adoptState(this.#state, version)
    this.#state = undefined
  }

  #adoptState(state: VersionState, version: VersionRef): void {
    const { held, witness } = this.#parts
    held.adopt(state, version)
    witness?.adopted(version, () => held.encode())
  }

  apply(record: StepRecord, version: VersionRef): void {
    if (this.#sum === undefined) throw new Error('internal: nothing staged to apply')
    this.#parts.held.apply(record, version, this.#sum)
    this.#parts.witness?.applied(record, this.#sum)
    this.#sum = undefined
  }
}
