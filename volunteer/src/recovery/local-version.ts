// The version that a member holds. Parameters and optimizer state are in two copies that swap, so a version is whole or
// absent (R10). The reduced gradients of the last steps serve members that are some steps behind (R7).
import {
  decodeVersionState,
  emptyStates,
  encodeVersionState,
  initialVersionState,
  maxVersionBytes,
  meanOfStep,
  nextVersion,
  parameterLayout,
  type ModelSpec,
  type ParameterLayout,
  type VersionContent,
} from '@starling-grid/model'
import { sameVersion, type StepRecord, SUMS_KEPT, type VersionRef } from '@starling-grid/protocol'
import type { OptimizerSpec } from '@starling-grid/shaders'

export type DecodedVersion = ReturnType<typeof decodeVersionState>

export interface TrainingTerms {
  readonly spec: ModelSpec
  readonly optimizer: OptimizerSpec
  /** of jobs with local rounds */
  readonly outer?: OptimizerSpec
  readonly clipNorm: number | undefined
}

/**
 * Bytes of reduced gradients that are kept: several steps of any model that a tab can train, and below what it has in
 * buffers anyway.
 */
const KEPT_BYTES = 64 * 1024 * 1024

/** What an update depends on besides the version and the sum. */
export type StepTerms = Pick<StepRecord, 'kind' | 'targets' | 'scaling'>

/** `from`: the copy that was held, which no other version takes the place of. */
interface PreparedStep extends StepTerms {
  readonly from: VersionContent
  readonly sum: Float32Array
}

function isPrepared(
  prepared: PreparedStep | undefined,
  { kind, targets, scaling }: StepTerms,
  { from, sum }: Pick<PreparedStep, 'from' | 'sum'>,
): boolean {
  if (prepared?.from !== from || prepared.sum !== sum) return false
  return prepared.kind === kind && prepared.targets === targets && prepared.scaling?.lr === scaling?.lr
}

/** The rate of a step with weak scaling stands in its record, so that all who follow the chain use the same. */
function optimizerOf(optimizer: OptimizerSpec, { scaling }: StepTerms): OptimizerSpec {
  if (scaling === undefined) return optimizer
  const { schedule: _, ...rest } = optimizer
  return { ...rest, lr: scaling.lr }
}

export class LocalVersion {
  readonly layout: ParameterLayout
  readonly #terms: TrainingTerms
  #held: VersionContent
  #spare: VersionContent
  /** what the spare copy holds, until the next version is held */
  #prepared: PreparedStep | undefined
  #version: VersionRef | undefined
  /** Σ gradients of the last steps, the newest last; the last one whatever its size */
  readonly #reduced: { readonly version: VersionRef; readonly sum: Float32Array }[] = []

  constructor(terms: TrainingTerms) {
    this.#terms = terms
    this.layout = parameterLayout(terms.spec)
    this.#held = this.#empty()
    this.#spare = this.#empty()
  }

  get version(): VersionRef | undefined {
    return this.#version
  }

  /** (parameterCount,), valid until the next apply or adopt. */
  get parameters(): Float32Array {
    return this.#held.parameters
  }

  /** Version 0 from the seed, without a source. */
  adoptInitial(genesis: VersionRef, seed: number): void {
    this.#held = initialVersionState(this.#terms.spec, this.#terms.optimizer, seed, this.#terms.outer)
    this.#version = genesis
  }

  adopt({ parameters, optimizerState, outerState }: DecodedVersion, version: VersionRef): void {
    this.#held = { parameters, optimizerState, ...(outerState ? { outerState } : {}) }
    this.#version = version
  }

  /**
   * @throws GridError 'version-corrupt' when the bytes are not the whole state of `version`, or of any version of this
   * model
   */
  decode(bytes: Uint8Array, version?: VersionRef): DecodedVersion & { readonly version: VersionRef } {
    return decodeVersionState(bytes, { ...this.#terms, layout: this.layout, ...(version ? { version } : {}) })
  }

  /**
   * Computes into the spare copy what `apply` will swap in, while another thread still hashes the sum. Without effect
   * when something else is applied then.
   */
  prepare(step: StepTerms, sum: Float32Array): void {
    this.#prepared = undefined
    if (this.#version === undefined) return
    this.#update(step, sum)
    this.#prepared = { ...step, from: this.#held, sum }
  }

  /**
   * One optimizer step with Σ gradients `sum`, exact f32 and so equal on every machine. Mean over the targets, clip,
   * update into the spare copy, swap. `sum` stays as it is from `prepare` on.
   */
  apply(record: StepRecord, version: VersionRef, sum: Float32Array): void {
    if (!isPrepared(this.#prepared, record, { from: this.#held, sum })) this.#update(record, sum)
    this.#prepared = undefined
    const old = this.#held
    this.#held = this.#spare
    this.#spare = old
    this.#version = version
    this.#reduced.push({ version, sum })
    if (this.#reduced.length > Math.min(SUMS_KEPT, Math.max(1, Math.floor(KEPT_BYTES / sum.byteLength))))
      this.#reduced.shift()
  }

  #update(record: StepTerms, sum: Float32Array): void {
    // the job's bound is on gradients, and members of a round kept to it in their inner steps
    const clipNorm = record.kind === 'round' ? undefined : this.#terms.clipNorm
    const mean = meanOfStep(this, sum, { targets: record.targets, clipNorm })
    nextVersion(
      { ...this.#terms, optimizer: optimizerOf(this.#terms.optimizer, record), layout: this.layout },
      this.#held,
      mean,
      this.#spare,
      record.kind === 'round' ? 'round' : 'step',
    )
  }

  /** Σ gradients of the step that made `version`, if this member still has them. */
  reduced(version: VersionRef): Float32Array | undefined {
    return this.#reduced.find((kept) => sameVersion(kept.version, version))?.sum
  }

  /** Steps whose reduced gradients are less to fetch than the whole state is; one at least. */
  get replayMost(): number {
    const vectorBytes = Float32Array.BYTES_PER_ELEMENT * this.layout.total
    return Math.max(1, Math.ceil(maxVersionBytes({ ...this.#terms, layout: this.layout }) / vectorBytes) - 2)
  }

  /** The whole state as bytes; equal on all members that hold the version, so their SHA-256 is its digest (R15). */
  encode(): Uint8Array {
    if (this.#version === undefined) throw new Error('internal: no version is held')
    return encodeVersionState({ ...this.#terms, layout: this.layout, version: this.#version, ...this.#held })
  }

  #empty(): VersionContent {
    return { parameters: new Float32Array(this.layout.total), ...emptyStates({ ...this.#terms, layout: this.layout }) }
  }
}
