// How many of something there are under each name: connections of an address, seats of a member.
export class KeyedCounts {
  readonly #counts = new Map<string, number>()

  of(name: string): number {
    return this.#counts.get(name) ?? 0
  }

  add(name: string): void {
    this.#counts.set(name, this.of(name) + 1)
  }

  remove(name: string): void {
    const left = this.of(name) - 1
    if (left > 0) this.#counts.set(name, left)
    else this.#counts.delete(name)
  }
}
