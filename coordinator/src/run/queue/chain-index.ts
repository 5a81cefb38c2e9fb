// The committed chain of a run, and which blocks it makes DONE: derived, never stored (R12). Records are kept
// back to the oldest checkpoint that a rewind may go to; older ones are on the disk alone.
import { extend, type BlockId, type StepRecord, type VersionRef } from '@starling-grid/protocol'
import { DoneBlocks, type DoneEpoch } from './done-blocks.ts'

/** The chain in a snapshot. */
export interface WrittenChain {
  readonly base: VersionRef
  readonly records: readonly StepRecord[]
  /** what `records` lead to */
  readonly head: VersionRef
  readonly done: readonly DoneEpoch[]
}

/** As others than applyEntry see it. */
export type Chain = Readonly<Omit<ChainIndex, 'append' | 'grow' | 'truncate' | 'forgetBefore' | 'read'>>

export class ChainIndex {
  readonly genesis: VersionRef
  /** what follows `#versions[0]`, the oldest version that is remembered */
  readonly #records: StepRecord[] = []
  readonly #versions: VersionRef[] = []
  /** how often records were taken off again */
  truncations = 0
  readonly #done: DoneBlocks

  /** `blocks`: training blocks of an epoch, until it grows */
  constructor(genesis: VersionRef, blocks: number) {
    this.genesis = genesis
    this.#versions.push(genesis)
    this.#done = new DoneBlocks(blocks)
  }

  /** (C, id(C)): the committed version. */
  get head(): VersionRef {
    return this.#versions.at(-1) ?? this.genesis
  }

  /** The oldest version that is remembered; `records` follow it. */
  get base(): VersionRef {
    return this.#versions[0] ?? this.genesis
  }

  /** Those that are kept, the oldest first. */
  get records(): readonly StepRecord[] {
    return this.#records
  }

  /** The record that made version v, while it is kept. */
  record(v: number): StepRecord | undefined {
    return this.#records[v - this.base.v - 1]
  }

  /** At most `max` records that follow version v, which is remembered. */
  since(v: number, max = Number.POSITIVE_INFINITY): StepRecord[] {
    const from = v - this.base.v
    if (from < 0) throw new Error(`internal: records since version ${v}, remembered since ${this.base.v}`)
    return this.#records.slice(from, from + max)
  }

  /** Version v of the chain; undefined beyond its head, and when it is forgotten. */
  at(v: number): VersionRef | undefined {
    return this.#versions[v - this.base.v]
  }

  /** Whether the version is on the chain and remembered. */
  has(version: VersionRef): boolean {
    return this.at(version.v)?.id === version.id
  }

  /** Epochs from this one on have so many blocks. */
  grow(epoch: number, blocks: number): void {
    this.#done.grow(epoch, blocks)
  }

  append(records: readonly StepRecord[]): void {
    for (const record of records) {
      this.#versions.push(extend(this.head, record))
      this.#records.push(record)
      for (const block of record.blocks) this.#done.add(block)
    }
  }

  /**
   * Back to a version (a rewind, R6): one that is remembered, or version 0. What was DONE by the records that go is no
   * longer. Returns what was cut off, as far as it follows `to` without a gap.
   */
  truncate(to: VersionRef): readonly StepRecord[] {
    this.truncations++
    if (to.v === 0 && this.base.v > 0) return this.#beginAnew()
    if (to.v < this.base.v)
      throw new Error(`internal: back to version ${to.v}, the chain is remembered since ${this.base.v}`)
    const gone = this.#records.splice(to.v - this.base.v)
    this.#versions.length = to.v - this.base.v + 1
    for (const record of gone) for (const block of record.blocks) this.#done.delete(block)
    return gone
  }

  /** The chain has no checkpoint left but the seed. */
  #beginAnew(): readonly StepRecord[] {
    this.#records.length = 0
    this.#versions.splice(0, this.#versions.length, this.genesis)
    this.#done.clear()
    return []
  }

  /** Records up to version v may be asked for no more; what they made DONE stays so. */
  forgetBefore(v: number): void {
    const count = Math.min(v, this.head.v) - this.base.v
    if (count <= 0) return
    this.#records.splice(0, count)
    this.#versions.splice(0, count)
  }

  isDone(block: BlockId): boolean {
    return this.#done.has(block)
  }

  /** As isDone(), for who looks at many. */
  isDoneAt(epoch: number, index: number): boolean {
    return this.#done.hasAt(epoch, index)
  }

  /** How many blocks of the epoch are DONE. */
  doneIn(epoch: number): number {
    return this.#done.count(epoch)
  }

  /** What it costs, for tests that count. */
  get counts(): { readonly records: number; readonly versions: number; readonly openEpochs: number } {
    return { records: this.#records.length, versions: this.#versions.length, openEpochs: this.#done.openEpochs }
  }

  written(): WrittenChain {
    return { base: this.base, records: [...this.#records], head: this.head, done: this.#done.written() }
  }

  /** Replaces what is known. @throws Error when the records do not lead from the base to the head */
  read({ base, records, head, done }: WrittenChain): void {
    this.#records.length = 0
    this.#versions.splice(0, this.#versions.length, base)
    this.append(records)
    if (this.head.id !== head.id)
      throw new Error(`expected records that lead to version ${head.v} (${head.id}), got ${this.head.id}`)
    this.#done.read(done)
  }
}
