// The parameter server of a simulated coordinator: a replica that pushes are added to.
import type { Checkpoint } from '@starling-grid/coordinator/run'
import type { Sha256, StepRecord, VersionRef } from '@starling-grid/protocol'
import type { Chronicle } from '../world/chronicle.ts'
import { digestOf, plus, type Replica } from '../world/history.ts'
import type { Context } from './context.ts'

/** ms that writing a blob takes at most */
const WRITE_MS = 1500

export interface Written {
  readonly version: VersionRef
  readonly blob: Sha256
  readonly bytes: number
}

export class ParameterServer {
  readonly #context: Context
  readonly #blobs: Map<Sha256, Replica>
  readonly #chronicle: Chronicle
  #replica: Replica | undefined
  /** of the pushes that are no version yet */
  #sum: Float32Array | undefined

  constructor(
    context: Context,
    { blobs, chronicle }: { readonly blobs: Map<Sha256, Replica>; readonly chronicle: Chronicle },
  ) {
    this.#context = context
    this.#blobs = blobs
    this.#chronicle = chronicle
  }

  /** A5: it starts from what is committed, or what it writes belongs to no version. */
  load({ version, blob }: Checkpoint, onDamaged: () => void): void {
    const counts = blob === undefined ? new Float32Array(this.#context.history.length) : this.#blobs.get(blob)?.counts
    const { head } = this.#chronicle
    if (version.id !== head.id)
      this.#context.violations.report(
        'I6',
        `the parameter server starts at version ${version.v} while version ${head.v} is committed`,
      )
    if (counts === undefined) return onDamaged()
    this.#replica = { version, counts }
    this.#sum = undefined
  }

  add(gradient: Float32Array | undefined): void {
    if (this.#replica === undefined || gradient === undefined)
      return this.#context.violations.report('I6', 'a push is added to nothing')
    this.#sum = this.#sum === undefined ? gradient : plus(this.#sum, gradient)
  }

  close(record: StepRecord, version: VersionRef): void {
    if (this.#replica === undefined || this.#sum === undefined)
      return this.#context.violations.report('I6', 'a version is made of nothing')
    this.#context.history.record(this.#replica.version, record, version)
    this.#replica = { version, counts: plus(this.#replica.counts, this.#sum) }
    this.#sum = undefined
    this.#context.history.check('the parameter server', this.#replica)
  }

  write(version: VersionRef, done: (written: Written) => void): void {
    const replica = this.#replica
    if (replica === undefined || replica.version.id !== version.id)
      return this.#context.violations.report('I6', `the parameter server does not hold version ${version.v}`)
    const blob = digestOf(replica)
    this.#context.agenda.later(
      this.#context.dice.between(0, WRITE_MS),
      () => `the parameter server wrote version ${version.v}`,
      () => {
        this.#blobs.set(blob, replica)
        done({ version, blob, bytes: replica.counts.byteLength })
      },
    )
  }

  /** A6: no member holds what it wrote since its last checkpoint. */
  unload(): void {
    if (this.#replica !== undefined && !this.#chronicle.wasSaved(this.#replica.version) && this.#replica.version.v > 0)
      this.#context.violations.report(
        'lost-work',
        `the parameter server stops and no member has its version ${this.#replica.version.v}`,
      )
    this.#replica = undefined
    this.#sum = undefined
  }
}
