// Virtual time: what is due first happens first, in the order in which it was asked for. A binary heap.

interface DueEvent {
  readonly at: number
  readonly order: number
  readonly act: () => void
}

export class EventClock {
  /** ms */
  now = 0
  readonly #heap: DueEvent[] = []
  #asked = 0

  after(ms: number, act: () => void): void {
    this.#push({ at: this.now + Math.max(0, ms), order: this.#asked++, act })
  }

  /** Everything that is due until then. */
  runUntil(end: number): void {
    for (let next = this.#heap[0]; next !== undefined && next.at <= end; next = this.#heap[0]) {
      this.#pop()
      this.now = next.at
      next.act()
    }
    this.now = end
  }

  #push(due: DueEvent): void {
    const heap = this.#heap
    let i = heap.push(due) - 1
    for (let parent = (i - 1) >> 1; i > 0 && before(due, heap[parent]); parent = (i - 1) >> 1) {
      heap[i] = heap[parent] ?? due
      i = parent
    }
    heap[i] = due
  }

  #pop(): void {
    const heap = this.#heap
    const last = heap.pop()
    if (last === undefined || heap.length === 0) return
    let i = 0
    for (;;) {
      const [left, right] = [2 * i + 1, 2 * i + 2]
      const child = right < heap.length && before(heap[right], heap[left]) ? right : left
      const lower = heap[child]
      if (lower === undefined || !before(lower, last)) break
      heap[i] = lower
      i = child
    }
    heap[i] = last
  }
}

function before(a: DueEvent | undefined, b: DueEvent | undefined): boolean {
  if (a === undefined || b === undefined) return a !== undefined
  return a.at < b.at || (a.at === b.at && a.order < b.order)
}
