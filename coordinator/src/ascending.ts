// Numbers in ascending order, as they come and go: a median costs no sorting.
export class Ascending {
  readonly #numbers: number[]
  /** undefined: not known since they changed */
  #sum: number | undefined

  constructor(numbers: Iterable<number> = []) {
    this.#numbers = [...numbers].sort((a, b) => a - b)
  }

  get size(): number {
    return this.#numbers.length
  }

  add(value: number): void {
    this.#sum = undefined
    this.#numbers.splice(this.#placeOf(value), 0, value)
  }

  /** One of them that equals `value`, which is here. */
  remove(value: number): void {
    this.#sum = undefined
    this.#numbers.splice(this.#placeOf(value), 1)
  }

  clear(): void {
    this.#sum = undefined
    this.#numbers.length = 0
  }

  /** From the smallest on: the same for the same numbers, in whatever order they came. */
  get sum(): number {
    this.#sum ??= this.#numbers.reduce((sum, value) => sum + value, 0)
    return this.#sum
  }

  /** The middle one, the lower of two; undefined: there is none. */
  lowerMedian(): number | undefined {
    return this.#numbers[(this.size - 1) >> 1]
  }

  /** The middle one, the upper of two; undefined: there is none. */
  upperMedian(): number | undefined {
    return this.#numbers[this.size >> 1]
  }

  /** Of the first number that is not below this one. */
  #placeOf(value: number): number {
    let [from, to] = [0, this.size]
    while (from < to) {
      const middle = (from + to) >> 1
      if ((this.#numbers[middle] ?? 0) < value) from = middle + 1
      else to = middle
    }
    return from
  }
}
