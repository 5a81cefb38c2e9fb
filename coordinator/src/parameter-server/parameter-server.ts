// The one writer of async mode (A1): holds the newest version in memory and turns each accepted push into the next, with the
// arithmetic of ring members. Which pushes are accepted is decided in run/leases.ts; this file only computes.
import { encodeVersionState, nextVersion, type VersionForm, type VersionState } from '@starling-grid/model'
import { GridError, type VersionId, type VersionRef } from '@starling-grid/protocol'
import { createOptimizerState, meanGradient, type OptimizerState } from '@starling-grid/shaders'
import { NormClip } from './norm-clip.ts'

/** Versions whose parameters are kept for volunteers that were granted them: leases name the head, and pulls follow at once. */
const KEPT_VERSIONS = 12
/** Bytes for all kept versions together; large models keep fewer, but never fewer than two. */
const KEPT_BYTES = 512 * 1024 * 1024

export interface Update {
  /** Σ gradients, (parameterCount,); its memory is not kept */
  readonly sum: Float32Array
  /** the targets that Σ runs over */
  readonly targets: number
  /** factor for staleness, 0…1 */
  readonly damping: number
  readonly version: VersionRef
}

interface Kept {
  readonly version: VersionRef
  readonly parameters: Float32Array
}

export class ParameterServer {
  readonly #form: VersionForm
  readonly #clipNorm: number | undefined
  readonly #keep: number
  readonly #mean: Float32Array
  #clip = new NormClip()
  /** oldest first; the last is the head */
  #kept: Kept[] = []
  #state: OptimizerState
  #spare: OptimizerState

  constructor(form: VersionForm, clipNorm: number | undefined) {
    const { total } = form.layout
    this.#form = form
    this.#clipNorm = clipNorm
    this.#keep = Math.max(2, Math.min(KEPT_VERSIONS, Math.floor(KEPT_BYTES / (total * Float32Array.BYTES_PER_ELEMENT))))
    this.#mean = new Float32Array(total)
    this.#state = createOptimizerState(form.optimizer, 0)
    this.#spare = this.#state
  }

  get head(): VersionRef | undefined {
    return this.#kept.at(-1)?.version
  }

  /** A5: takes over at a version; what was held before is forgotten. */
  load({ version, parameters, optimizerState }: VersionState): void {
    this.#clip = new NormClip()
    this.#kept = [{ version, parameters }]
    this.#state = optimizerState
    this.#spare = createOptimizerState(this.#form.optimizer, this.#form.layout.trained)
  }

  /** A6: the ring is the writer again. */
  unload(): void {
    this.#kept = []
    this.#state = createOptimizerState(this.#form.optimizer, 0)
    this.#spare = this.#state
  }

  /** A3. Returns the norm of the mean gradient before clipping. */
  apply({ sum, targets, damping, version }: Update): number {
    const head = this.#kept.at(-1)
    if (head === undefined || version.v !== head.version.v + 1) throw new Error(`internal: version ${version.v} cannot follow ${head?.version.v}`)
    const mean = this.#mean
    meanGradient(sum, targets, mean)
    const { trained } = this.#form.layout
    const norm = this.#clip.clip(mean.subarray(0, trained), this.#clipNorm)
    if (damping < 1) for (let i = 0; i < trained; i++) mean[i] = Math.fround((mean[i] ?? 0) * damping)
    const next = this.#freeVector()
    nextVersion(this.#form, { parameters: head.parameters, optimizerState: this.#state }, mean, { parameters: next, optimizerState: this.#spare })
    ;[this.#state, this.#spare] = [this.#spare, this.#state]
    this.#kept.push({ version, parameters: next })
    return norm
  }

  /** Parameters of a recent version, valid until the next apply; undefined when it is gone. */
  parametersOf(id: VersionId): Kept | undefined {
    return this.#kept.find(({ version }) => version.id === id)
  }

  /** The newest version as bytes, for a checkpoint (A4). */
  encode(): { readonly version: VersionRef; readonly bytes: Uint8Array<ArrayBuffer> } {
    const head = this.#kept.at(-1)
    if (head === undefined) throw new Error('internal: the parameter server holds no version')
    return { version: head.version, bytes: encodeVersionState({ ...this.#form, ...head, optimizerState: this.#state }) }
  }

  /** The oldest kept vector is written over: versions come faster than a garbage collector likes. */
  #freeVector(): Float32Array {
    const oldest = this.#kept.length >= this.#keep ? this.#kept.shift() : undefined
    return oldest?.parameters ?? new Float32Array(this.#form.layout.total)
  }
}

/**
 * Body of a push → Σ gradients, after the checks that come before any decision (A2).
 * @throws GridError 'gradient-shape', 'gradient-not-finite'
 */
export function readGradient(body: Uint8Array, parameterCount: number): Float32Array {
  const bytes = parameterCount * Float32Array.BYTES_PER_ELEMENT
  if (body.byteLength !== bytes) throw new GridError('gradient-shape', `a gradient of this model has ${bytes} bytes, got ${body.byteLength}`)
  const aligned = body.byteOffset % Float32Array.BYTES_PER_ELEMENT === 0 ? body : new Uint8Array(body)
  const values = new Float32Array(aligned.buffer, aligned.byteOffset, parameterCount)
  const bad = values.findIndex((value) => !Number.isFinite(value))
  if (bad >= 0) throw new GridError('gradient-not-finite', `element ${bad} of the gradient is ${values[bad]}`)
  return values
}
