// What a member can serve to others besides the state that it holds: the sums of its last steps, and a copy of an
// earlier version.
import { sameVersion, type VersionRef } from '@starling-grid/protocol'
import { type MemberCore, mayServe } from '@starling-grid/volunteer/member'
import type { Replica } from '../world/history.ts'
import type { FetchWish } from './context.ts'

/** steps whose sums are kept */
const KEPT = 4

export class ReplicaStore {
  readonly #sums: { readonly version: VersionRef; readonly sum: Float32Array }[] = []
  /** of an earlier version, for newcomers */
  copy: Replica | undefined

  keep(version: VersionRef, sum: Float32Array): void {
    this.#sums.push({ version, sum })
    if (this.#sums.length > KEPT) this.#sums.shift()
  }

  serve(
    { kind, generation, version }: FetchWish,
    core: MemberCore,
    held: Replica | undefined,
  ): Float32Array | undefined {
    if (
      kind === 'state' &&
      generation === core.promised &&
      this.copy !== undefined &&
      sameVersion(this.copy.version, version)
    )
      return this.copy.counts.slice()
    if (!mayServe(core, generation, version, kind)) return undefined
    if (kind === 'state') return held?.counts.slice()
    return this.#sums.find((kept) => sameVersion(kept.version, version))?.sum
  }
}
