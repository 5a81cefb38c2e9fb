// What members said of the bytes of the versions last asked for, also those that left meanwhile (R15).
import type { MemberId, Sha256, VersionRef } from '@starling-grid/protocol'
import { own, type RunState } from '../state.ts'

/** Versions whose digests are remembered: an upload may be under way for longer than the next one is asked for. */
const VERSIONS_REMEMBERED = 4

export type DigestsOfVersion = Map<MemberId, { readonly version: VersionRef; readonly digest: Sha256 }>

declare module '../state.ts' {
  interface Slices {
    /** by version number */
    digests: Map<number, DigestsOfVersion>
  }
}

export const digests = { initial: () => ({ digests: new Map<number, DigestsOfVersion>() }) }

/** Digests of this version are taken from now on; those of the oldest are forgotten. */
export function expectDigests(state: RunState, v: number): void {
  const all = own(state, 'digests')
  if (!all.has(v)) all.set(v, new Map())
  for (const old of all.keys()) if (all.size > VERSIONS_REMEMBERED) all.delete(old)
}

/** Nothing is kept of a version that no digest was asked of. */
export function noteDigest(state: RunState, member: MemberId, version: VersionRef, digest: Sha256): void {
  own(state, 'digests').get(version.v)?.set(member, { version, digest })
}

/** By member, of this very version. */
export function saidOf({ digests }: RunState, { v, id }: VersionRef): Map<MemberId, Sha256> {
  const said = [...(digests.get(v) ?? [])].filter(([, { version }]) => version.id === id)
  return new Map(said.map(([member, { digest }]) => [member, digest]))
}

/** What was judged is in doubt no more. */
export function forgetSaid(state: RunState, { v }: VersionRef, members: readonly MemberId[]): void {
  for (const member of members) own(state, 'digests').get(v)?.delete(member)
}
