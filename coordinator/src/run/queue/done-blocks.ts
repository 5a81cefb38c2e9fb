// Which blocks of each epoch are DONE: one bit for a block of an epoch under way, one number for an epoch that is
// whole.
import { type BlockId, blockIndex, epochOf } from '@starling-grid/protocol'

interface Bits {
  readonly bytes: Uint8Array
  count: number
}

/** An epoch as it is written to a snapshot: base64 of its bits, least significant first; undefined: all blocks. */
export interface DoneEpoch {
  readonly epoch: number
  readonly bits?: string
}

export class DoneBlocks {
  /** blocks of the epochs from one on, ascending; the first from 0 */
  readonly #sizes: { readonly epoch: number; readonly blocks: number }[]
  readonly #open = new Map<number, Bits>()
  readonly #whole = new Set<number>()

  constructor(blocks: number) {
    this.#sizes = [{ epoch: 0, blocks }]
  }

  /** Epochs from this one on have so many blocks; what is DONE of them stays so. */
  grow(epoch: number, blocks: number): void {
    const whole = [...this.#whole].filter((one) => one >= epoch)
    for (const one of whole) this.#bitsOf(one)
    this.#sizes.push({ epoch, blocks })
    for (const [one, { bytes, count }] of this.#open)
      if (one >= epoch) this.#open.set(one, { bytes: longer(bytes, blocks), count })
  }

  #blocksOf(epoch: number): number {
    return this.#sizes.findLast((size) => size.epoch <= epoch)?.blocks ?? 0
  }

  has(block: BlockId): boolean {
    return this.hasAt(epochOf(block), blockIndex(block))
  }

  /** As has(), for who looks at many. */
  hasAt(epoch: number, index: number): boolean {
    if (this.#whole.has(epoch)) return index < this.#blocksOf(epoch)
    return isSet(this.#open.get(epoch), index)
  }

  /** Blocks of the epoch that are DONE. */
  count(epoch: number): number {
    return this.#whole.has(epoch) ? this.#blocksOf(epoch) : (this.#open.get(epoch)?.count ?? 0)
  }

  /** Epochs that cost one bit a block, for tests that count. */
  get openEpochs(): number {
    return this.#open.size
  }

  add(block: BlockId): void {
    const [epoch, index] = [epochOf(block), blockIndex(block)]
    if (this.#isUnknown(epoch, index) || this.has(block)) return
    const bits = this.#bitsOf(epoch)
    setBit(bits, index)
    if (bits.count < this.#blocksOf(epoch)) return
    this.#open.delete(epoch)
    this.#whole.add(epoch)
  }

  delete(block: BlockId): void {
    const [epoch, index] = [epochOf(block), blockIndex(block)]
    if (!this.has(block)) return
    const bits = this.#bitsOf(epoch)
    clearBit(bits, index)
    if (bits.count === 0) this.#open.delete(epoch)
  }

  clear(): void {
    this.#open.clear()
    this.#whole.clear()
  }

  /** For a snapshot, ascending by epoch. */
  written(): DoneEpoch[] {
    const whole = [...this.#whole].map((epoch) => ({ epoch }))
    const open = [...this.#open].map(([epoch, { bytes }]) => ({ epoch, bits: Buffer.from(bytes).toString('base64') }))
    return [...whole, ...open].sort((a, b) => a.epoch - b.epoch)
  }

  /** As written(); replaces what is known. @throws Error when an epoch has bits of another size */
  read(epochs: readonly DoneEpoch[]): void {
    this.clear()
    for (const { epoch, bits } of epochs) {
      if (bits === undefined) this.#whole.add(epoch)
      else this.#open.set(epoch, this.#bitsFrom(bits, epoch))
    }
  }

  #bitsFrom(text: string, epoch: number): Bits {
    const bytes = new Uint8Array(Buffer.from(text, 'base64'))
    const blocks = this.#blocksOf(epoch)
    if (bytes.byteLength !== Math.ceil(blocks / 8))
      throw new Error(`expected ${blocks} bits of epoch ${epoch}, got ${8 * bytes.byteLength}`)
    return { bytes, count: bytes.reduce((sum, byte) => sum + onesIn(byte), 0) }
  }

  /** A journal may name what the dataset does not have: it counts for nothing. */
  #isUnknown(epoch: number, index: number): boolean {
    return !(index < this.#blocksOf(epoch))
  }

  /** Bits of an epoch that is about to change. */
  #bitsOf(epoch: number): Bits {
    const existing = this.#open.get(epoch)
    if (existing !== undefined) return existing
    const bits = this.#whole.delete(epoch) ? allOf(this.#blocksOf(epoch)) : noneOf(this.#blocksOf(epoch))
    this.#open.set(epoch, bits)
    return bits
  }
}

function noneOf(blocks: number): Bits {
  return { bytes: new Uint8Array(Math.ceil(blocks / 8)), count: 0 }
}

function longer(bytes: Uint8Array, blocks: number): Uint8Array {
  const more = new Uint8Array(Math.ceil(blocks / 8))
  more.set(bytes)
  return more
}

function allOf(blocks: number): Bits {
  const bits = noneOf(blocks)
  for (let index = 0; index < blocks; index++) setBit(bits, index)
  return bits
}

function isSet(bits: Bits | undefined, index: number): boolean {
  return (((bits?.bytes[index >> 3] ?? 0) >> (index & 7)) & 1) === 1
}

/** Of a bit that is not set. */
function setBit(bits: Bits, index: number): void {
  bits.bytes[index >> 3] = (bits.bytes[index >> 3] ?? 0) | (1 << (index & 7))
  bits.count++
}

/** Of a bit that is set. */
function clearBit(bits: Bits, index: number): void {
  bits.bytes[index >> 3] = (bits.bytes[index >> 3] ?? 0) & ~(1 << (index & 7))
  bits.count--
}

function onesIn(byte: number): number {
  let ones = 0
  for (let rest = byte; rest > 0; rest &= rest - 1) ones++
  return ones
}
