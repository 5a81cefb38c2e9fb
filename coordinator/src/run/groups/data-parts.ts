// Which part of the data each member has. A member keeps the shards that it fetched, so its next blocks are taken from
// these where some are free: a crowd fetches the data about once, and not once for every epoch. A newcomer gets blocks
// of what no other member has, then of what the fewest have. As locality in Zaharia et al., "Delay scheduling"
// (EuroSys 2010), without the delay: a member never waits for its own data. Remembered, not state: a coordinator that
// starts knows no parts.
import { blockIndex, type BlockId, type MemberId } from '@starling-grid/protocol'
import { freeNow } from '../async/accumulator.ts'
import type { FreeBlocks } from '../queue/free-blocks.ts'
import { unitOf } from '../queue/scheduler.ts'
import { type Member, own, type RunState } from '../state.ts'
import type { Aspect } from '../transition.ts'

declare module '../state.ts' {
  interface Slices {
    parts: DataParts
  }
}

export const dataParts = {
  initial: () => ({ parts: new DataParts() }),
  memberLost: ({ state }, { id }) => own(state, 'parts').forget(id),
} satisfies Aspect

const NONE: ReadonlySet<number> = new Set()

/** Units of the data that members were given blocks of. */
export class DataParts {
  readonly #units = new Map<MemberId, Set<number>>()
  readonly #members = new Map<number, number>()

  of(member: MemberId): ReadonlySet<number> {
    return this.#units.get(member) ?? NONE
  }

  /** Members that have it. */
  count(unit: number): number {
    return this.#members.get(unit) ?? 0
  }

  /** The unit, where the member did not have it. */
  add(member: MemberId, unit: number): readonly number[] {
    if (this.of(member).has(unit)) return []
    const units = this.#units.get(member) ?? new Set()
    this.#units.set(member, units.add(unit))
    this.#members.set(unit, this.count(unit) + 1)
    return [unit]
  }

  remove(member: MemberId, unit: number): void {
    if (this.#units.get(member)?.delete(unit) === true) this.#members.set(unit, this.count(unit) - 1)
  }

  forget(member: MemberId): void {
    for (const unit of this.of(member)) this.#members.set(unit, this.count(unit) - 1)
    this.#units.delete(member)
  }
}

/** What one member gets. */
export interface PartBlocks {
  readonly blocks: readonly BlockId[]
  /** units of the data that it did not have */
  readonly fetches: readonly number[]
}

export interface PartWishes {
  readonly members: readonly Member[]
  /** blocks for each */
  readonly wanted: readonly number[]
  /** a block that failed before goes alone to a member that may try it */
  mayTry(block: BlockId, member: MemberId): boolean
}

/**
 * Blocks of a round for each of these members, when it is its turn: first all get what is free of their own parts, so
 * that no member that would have to fetch it takes it from them.
 */
export function nextOfParts(state: RunState, { members, wanted, mayTry }: PartWishes): (i: number) => PartBlocks {
  const { failures } = state.aside
  const free = freeNow(state)
  const parts = own(state, 'parts')
  const sound = (blocks: readonly BlockId[]): readonly BlockId[] =>
    failures.size === 0 ? blocks : blocks.filter((block) => !failures.has(block))
  const tried = members.map(({ id }) => [...failures.keys()].find((block) => mayTry(block, id) && free.takeOne(block)))
  const kept = members.map(({ id }, i) =>
    tried[i] === undefined ? sound(ofOwn(free, parts, { member: id, max: wanted[i] ?? 1 })) : [],
  )
  return (i) => {
    const [member, block] = [members[i]?.id as MemberId, tried[i]]
    if (block !== undefined) return { blocks: [block], fetches: parts.add(member, unitWith(state, block)) }
    const [blocks, fetches]: [BlockId[], number[]] = [[...(kept[i] ?? [])], []]
    while (blocks.length < (wanted[i] ?? 1)) {
      const unit = rarest(free, parts, member)
      if (unit === undefined) break
      fetches.push(...parts.add(member, unit))
      blocks.push(...sound(free.take(unit, (wanted[i] ?? 1) - blocks.length)))
    }
    return { blocks, fetches }
  }
}

/**
 * Of a round that was cut only the `done` first blocks were computed. Of what the member was to fetch, the next inner
 * step's is on its way; the rest is not this member's any more.
 */
export function leftUndone(state: RunState, member: MemberId, { blocks, fetches }: PartBlocks, done: number): void {
  const ahead = blocks.slice(0, done + state.config.batchBlocks)
  const known = new Set(ahead.map((block) => unitWith(state, block)))
  for (const unit of fetches) if (!known.has(unit)) own(state, 'parts').remove(member, unit)
}

function unitWith(state: RunState, block: BlockId): number {
  return Math.floor(blockIndex(block) / unitOf(state))
}

/** From its units, first from those that few others have. */
function ofOwn(
  free: FreeBlocks,
  parts: DataParts,
  { member, max }: { readonly member: MemberId; readonly max: number },
): BlockId[] {
  const blocks: BlockId[] = []
  const units = [...parts.of(member)].filter((unit) => free.freeIn(unit) > 0)
  for (const unit of units.sort((a, b) => parts.count(a) - parts.count(b)))
    if (blocks.length < max) blocks.push(...free.take(unit, max - blocks.length))
  return blocks
}

/** Of the units of which something is free, and that this member has not, the first that the fewest have. */
function rarest(free: FreeBlocks, parts: DataParts, member: MemberId): number | undefined {
  if (free.total === 0) return undefined
  const own = parts.of(member)
  let [best, fewest] = [undefined as number | undefined, Number.POSITIVE_INFINITY]
  for (const unit of free.units) {
    if (free.freeIn(unit) === 0 || parts.count(unit) >= fewest || own.has(unit)) continue
    ;[best, fewest] = [unit, parts.count(unit)]
    if (fewest === 0) break
  }
  return best
}
