// What most of several members say of the same bytes, and whether they are more than any others.
import type { MemberId, Sha256 } from '@starling-grid/protocol'

export interface Agreement {
  /** what the largest group says */
  readonly digest: Sha256
  readonly most: readonly MemberId[]
  /** all that say something else */
  readonly few: readonly MemberId[]
  /** the largest group is larger than every other */
  readonly isClear: boolean
}

/** undefined: nothing was said. */
export function agreementOf(said: ReadonlyMap<MemberId, Sha256>): Agreement | undefined {
  const groups = new Map<Sha256, MemberId[]>()
  for (const [member, digest] of said) groups.set(digest, [...(groups.get(digest) ?? []), member])
  const [first, second] = [...groups].sort((a, b) => b[1].length - a[1].length)
  if (first === undefined) return undefined
  const [digest, most] = first
  const few = [...said.keys()].filter((member) => !most.includes(member))
  return { digest, most, few, isClear: most.length > (second?.[1].length ?? 0) }
}
