// How a member reaches a source of the ballot's target that is no neighbour of its own (R7, R18): directly, or through
// the coordinator where their link was seen not to open. Pure.
import type { MemberId } from '@starling-grid/protocol'
import type { LinkVerdict } from './link-health.ts'

/** The member fetches the target of a ballot from the source, and no frame of a step goes between the two. */
export interface SourceLink {
  readonly member: MemberId
  readonly source: MemberId
}

/**
 * Relayed links to sources that a member has, and a source: with two neighbours that are relayed as well, they are the
 * four ends that the relay allows one member. Members beyond that fetch at the next ballot, from more sources.
 */
const MOST_RELAYED = 2

/** Of one FORM. */
export interface FormSources {
  readonly members: readonly MemberId[]
  readonly sources: readonly MemberId[]
  /** frames of a step go between these two: the generation has their link */
  areNeighbours(a: MemberId, b: MemberId): boolean
  judge(a: MemberId, b: MemberId): LinkVerdict
}

/**
 * R18, for sources: a link that is not good goes through the coordinator, also after the relay failed once. A fetch
 * that fails again costs this ballot alone, and there may be no other source.
 */
export function linksToRelay({ members, sources, areNeighbours, judge }: FormSources): SourceLink[] {
  const links: SourceLink[] = []
  const count = (id: MemberId): number => links.filter(({ member, source }) => member === id || source === id).length
  for (const member of members.filter((id) => !sources.includes(id)))
    for (const source of sources) {
      if (areNeighbours(member, source) || judge(member, source) === 'good') continue
      if (count(member) < MOST_RELAYED && count(source) < MOST_RELAYED) links.push({ member, source })
    }
  return links
}

/** The coordinator carries the frames of these two, so that one can fetch from the other. */
export function isRelayedSource(links: readonly SourceLink[] = [], a: MemberId, b: MemberId): boolean {
  return links.some(({ member, source }) => (member === a && source === b) || (member === b && source === a))
}

/** What a source outside the generation, or one that is no neighbour of a member, is told before FORM. */
export interface Meeting {
  readonly source: MemberId
  /** members that may open a link to it */
  readonly members: MemberId[]
  /** those of them that it links to through the coordinator; absent: none */
  readonly relayed?: MemberId[]
}

/** R7: a source outside the ring answers only members that it was told of. One inside knows all but who is relayed. */
export function meetings(
  { members, sources }: Pick<FormSources, 'members' | 'sources'>,
  links: readonly SourceLink[],
): Meeting[] {
  return sources.flatMap((source) => {
    const relayed = links.flatMap((link) => (link.source === source ? link.member : []))
    const viaUs = relayed.length > 0 ? { relayed } : {}
    if (!members.includes(source)) return [{ source, members: [...members], ...viaUs }]
    return relayed.length > 0 ? [{ source, members: relayed, ...viaUs }] : []
  })
}
