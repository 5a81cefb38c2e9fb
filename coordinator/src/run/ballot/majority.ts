// What most of several members say of the same bytes, and whether they are more than any others.
import type { MemberId, Sha256 } from '@starling-grid/protocol'

export interface Agreement {
  /** what the largest group says, or what is right */
  readonly digest: Sha256
  readonly most: readonly MemberId[]
  /** all that say something else */
  readonly few: readonly MemberId[]
  /** the largest group is larger than every other */
  readonly isClear: boolean
}

/** Who says what is known to be right, and who does not. */
export function agreementWith(digest: Sha256, said: ReadonlyMap<MemberId, Sha256>): Agreement {
  const largest = [...said].flatMap(([member, one]) => (one === digest ? [member] : []))
  const few = [...said.keys()].filter((member) => !largest.includes(member))
  return { digest, most: largest, few, isClear: true }
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
