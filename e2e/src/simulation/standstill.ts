// What waits while a process, or one kind of its work, stands still; it happens in its order when that is over.

export class Standstill {
  #waiting: (() => void)[] | undefined

  begin(): void {
    this.#waiting ??= []
  }

  get now(): boolean {
    return this.#waiting !== undefined
  }

  /** True: it happens later. */
  defers(act: () => void): boolean {
    this.#waiting?.push(act)
    return this.#waiting !== undefined
  }

  end(): void {
    const waiting = this.#waiting ?? []
    this.#waiting = undefined
    for (const act of waiting) act()
  }
}
