// The committed chain of a run with its ids, and which blocks it makes DONE: derived, never stored (COMMIT.md R12).
import { type BlockId, epochOf, extend, type StepRecord, type VersionRef } from '@starling-grid/protocol'

export class ChainIndex {
  readonly genesis: VersionRef
  readonly #records: StepRecord[] = []
  readonly #versions: VersionRef[] = []
  /** how often records were taken off again */
  truncations = 0
  readonly #done = new Map<number, Set<BlockId>>()

  constructor(genesis: VersionRef) {
    this.genesis = genesis
    this.#versions.push(genesis)
  }

  /** (C, id(C)): the committed version. */
  get head(): VersionRef {
    return this.#versions.at(-1) ?? this.genesis
  }

  get records(): readonly StepRecord[] {
    return this.#records
  }

  at(v: number): VersionRef | undefined {
    return this.#versions[v]
  }

  has(version: VersionRef): boolean {
    return this.at(version.v)?.id === version.id
  }

  append(records: readonly StepRecord[]): void {
    for (const record of records) {
      this.#versions.push(extend(this.head, record))
      this.#records.push(record)
      for (const block of record.blocks) this.doneIn(epochOf(block)).add(block)
    }
  }

  /** Back to version v (a rewind, R6). `forget`: what was DONE by the records that go is no longer. */
  truncate(v: number, forget = true): void {
    this.truncations++
    const gone = this.#records.splice(v)
    this.#versions.length = v + 1
    if (forget) for (const record of gone) for (const block of record.blocks) this.doneIn(epochOf(block)).delete(block)
  }

  isDone(block: BlockId): boolean {
    return this.#done.get(epochOf(block))?.has(block) ?? false
  }

  doneIn(epoch: number): Set<BlockId> {
    const done = this.#done.get(epoch) ?? new Set()
    this.#done.set(epoch, done)
    return done
  }
}
