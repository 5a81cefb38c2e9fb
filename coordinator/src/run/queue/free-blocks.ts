// The free blocks of an epoch, counted by units of the data. A crowd holds leases of hundreds of thousands of blocks,
// and pushes hundreds of times in a second: none is looked at before it changes. Remembered, not state.
import { blockIndex, type BlockId, epochOf, trainingBlock } from '@starling-grid/protocol'

/** Blocks of a unit where the order has none. */
const USUAL_UNIT = 64

interface EpochOrder {
  readonly epoch: number
  readonly order: Uint32Array
  /** as many blocks in a row are of one unit of the data (protocol/src/order.ts); 1: the order has no units */
  readonly unit: number
}

/** What a look at one block finds, and how many would be found not free. */
interface BlocksNow {
  isFree(place: number): boolean
  readonly notFree: number
}

export class FreeBlocks {
  readonly #epoch: number
  readonly #order: Uint32Array
  /** unit → its first place */
  readonly #starts = new Map<number, number>()
  /** in the order of the epoch; unit → its place in that */
  readonly #units: Uint32Array
  readonly #turns: Uint32Array
  /** of no unit before this one in that order anything is free */
  #turn = 0
  /** place → its unit */
  readonly #unitAt: Uint32Array
  readonly #isFree: Uint8Array
  /** unit → its free blocks */
  readonly #counts: Uint32Array
  /** places that were given since they were looked at */
  #given: number[] = []
  #places: Uint32Array | undefined
  /** blocks that are neither free nor counted as taken, such as both leased and set aside; undefined: not looked at */
  #unknown: number | undefined
  #total = 0

  constructor({ epoch, order, unit }: EpochOrder) {
    this.#epoch = epoch
    this.#order = order
    this.#isFree = new Uint8Array(order.length)
    this.#unitAt = order.map((index, place) => Math.floor(unit === 1 ? place / USUAL_UNIT : index / unit))
    let last = -1
    for (let place = 0; place < order.length; place++) {
      const one = this.#unitAt[place] ?? 0
      if (one !== last) this.#starts.set(one, place)
      last = one
    }
    this.#units = Uint32Array.from(this.#starts.keys())
    this.#turns = inverse(this.#units)
    this.#counts = new Uint32Array(this.#units.length)
  }

  /** The blocks that are free. */
  get total(): number {
    return this.#total
  }

  /** Those of which something is free, and others, in the order of the epoch. */
  get units(): Uint32Array {
    while (this.#turn < this.#units.length && this.freeIn(this.#units[this.#turn] ?? 0) === 0) this.#turn++
    return this.#units.subarray(this.#turn)
  }

  /** What was given is taken now, or free still; of what was leased some came back. `freed` undefined: not known. */
  refresh(freed: readonly BlockId[] | undefined, now: BlocksNow): void {
    const given = this.#given.splice(0)
    const isKnown = freed !== undefined && this.#unknown !== undefined
    if (isKnown) for (const place of [...given, ...this.#placesOf(freed)]) this.#set(place, now.isFree(place))
    if (isKnown && this.#unknownOf(now) === this.#unknown) return
    for (let place = 0; place < this.#order.length; place++) this.#set(place, now.notFree === 0 || now.isFree(place))
    this.#unknown = this.#unknownOf(now)
  }

  #unknownOf({ notFree }: BlocksNow): number {
    return this.#order.length - this.#total - notFree
  }

  freeIn(unit: number): number {
    return this.#counts[unit] ?? 0
  }

  /** The first free ones of the epoch. They stay free until they are taken. */
  first(max: number): BlockId[] {
    const found: number[] = []
    for (const unit of this.units) {
      if (found.length === max) break
      if (this.freeIn(unit) > 0) for (const place of this.#free(unit, max - found.length)) found.push(place)
    }
    for (const place of found) this.#given.push(place)
    return found.map((place) => this.#blockAt(place))
  }

  /** Free ones of this unit, which are not free any more, until the next look. */
  take(unit: number, max: number): BlockId[] {
    const found = [...this.#free(unit, max)]
    for (const place of found) {
      this.#set(place, false)
      this.#given.push(place)
    }
    return found.map((place) => this.#blockAt(place))
  }

  /** False: it is not free. */
  takeOne(block: BlockId): boolean {
    const [place] = this.#placesOf([block])
    if (place === undefined || this.#isFree[place] !== 1) return false
    this.#set(place, false)
    this.#given.push(place)
    return true
  }

  *#free(unit: number, max: number): Generator<number> {
    let left = Math.min(max, this.freeIn(unit))
    for (let place = this.#starts.get(unit) ?? 0; left > 0; place++)
      if (this.#isFree[place] === 1) {
        left--
        yield place
      }
  }

  #set(place: number, isFree: boolean): void {
    const change = Number(isFree) - (this.#isFree[place] ?? 0)
    const unit = this.#unitAt[place] ?? 0
    this.#isFree[place] = Number(isFree)
    this.#counts[unit] = this.freeIn(unit) + change
    if (isFree) this.#turn = Math.min(this.#turn, this.#turns[unit] ?? 0)
    this.#total += change
  }

  #blockAt(place: number): BlockId {
    return trainingBlock(this.#epoch, this.#order[place] ?? 0)
  }

  #placesOf(blocks: readonly BlockId[]): number[] {
    if (blocks.length === 0) return []
    this.#places ??= inverse(this.#order)
    const places = this.#places
    return blocks.flatMap((block) => (epochOf(block) === this.#epoch ? (places[blockIndex(block)] ?? []) : []))
  }
}

/** The place of each in the order. */
function inverse(order: Uint32Array): Uint32Array {
  const places = new Uint32Array(order.length)
  for (let place = 0; place < order.length; place++) places[order[place] ?? 0] = place
  return places
}
