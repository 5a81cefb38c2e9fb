// Sums of gradients that were computed beside the ring, by off-ring members (A1). The coordinator gives each to a
// member of the ring, which contributes it with an assignment. All other rooms know a given sum and nothing of who made
// it. Pure.
import type { BlockId, Manifest, MessageTo, ToCoordinator } from '@starling-grid/protocol'

type Told = MessageTo<'off-ring'>

/** Given to the member of rank `rank`. here: it has fetched the gradients; done: they are in a step. */
export interface GivenSum extends Pick<Told, 'id' | 'rank' | 'blocks' | 'samples' | 'targets' | 'lossSum' | 'correct'> {
  stage: 'known' | 'here' | 'done'
}

/** What a generation knows of them. */
export interface GivenSums {
  readonly kind: 'ring' | 'round'
  readonly rank: number
  /** by number */
  readonly givenSums: Map<number, GivenSum>
}

/** Its blocks may be in a manifest from now on. It stays known to the end of the generation: none is done twice. */
export function onGiven(
  { givenSums }: GivenSums,
  { fence, generation, id, rank, blocks, samples, targets, lossSum, correct }: Told,
): ToCoordinator {
  if (!givenSums.has(id)) givenSums.set(id, { id, rank, blocks, samples, targets, lossSum, correct, stage: 'known' })
  return { type: 'off-ring-known', fence, generation, id }
}

/** All members know of it: the one that it was given to may fetch it. */
export function mayFetch({ givenSums, rank }: GivenSums, { id }: MessageTo<'off-ring-take'>): boolean {
  return givenSums.get(id)?.rank === rank
}

export function onGivenFetched({ givenSums }: GivenSums, id: number): void {
  const given = givenSums.get(id)
  if (given?.stage === 'known') given.stage = 'here'
}

/** The one that goes with an assignment which is sealed now. A round's difference is no gradient: none joins it. */
export function givenNow({ kind, rank, givenSums }: GivenSums): GivenSum | undefined {
  return kind === 'ring'
    ? [...givenSums.values()].find((given) => given.stage === 'here' && given.rank === rank)
    : undefined
}

/** The one that is in these manifests: its blocks end that of the member that was given it. */
export function givenIn({ givenSums }: GivenSums, manifests: readonly Manifest[]): GivenSum | undefined {
  return [...givenSums.values()].find(
    ({ rank, blocks, stage }) => stage !== 'done' && endsWith(manifests[rank]?.blocks ?? [], blocks),
  )
}

function endsWith(all: readonly BlockId[], end: readonly BlockId[]): boolean {
  return all.length >= end.length && end.every((block, i) => all[all.length - end.length + i] === block)
}

/** By rank: the blocks of the members' own assignments. */
export function ownBlocks(sums: GivenSums, manifests: readonly Manifest[]): (readonly BlockId[])[] {
  const given = givenIn(sums, manifests)
  return manifests.map(({ blocks }, rank) =>
    rank === given?.rank ? blocks.slice(0, blocks.length - given.blocks.length) : blocks,
  )
}
