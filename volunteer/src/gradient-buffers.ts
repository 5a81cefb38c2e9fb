// Who may write a gradient's memory, and until when (R3). Each assignment (a share of a step, a round, a grant) leases
// memory of its own. The lease ends with the assignment; memory that a computation still uses then is not leased again
// before the computation ended. So a computation that outlives a ballot can neither write into nor be added to what a
// later generation reads.

/** Free arrays that are kept: those of one share, which has two when it is computed in pieces. */
const MOST_FREE = 2

export class GradientLease {
  /** (parameterCount,) the lease's own until it ends; what it holds at first is undefined */
  readonly values: Float32Array
  readonly #giveBack: (values: Float32Array) => void
  #uses = 0
  #isOver = false

  constructor(values: Float32Array, giveBack: (values: Float32Array) => void) {
    this.values = values
    this.#giveBack = giveBack
  }

  get isOver(): boolean {
    return this.#isOver
  }

  /**
   * Runs what reads or writes `values` for a while. Undefined: the lease ended before `task` began, or before it was
   * done. Memory of a task that failed is given up: a part of it may still run.
   * @throws what `task` throws
   */
  async use<T>(task: (values: Float32Array) => Promise<T>): Promise<T | undefined> {
    if (this.#isOver) return undefined
    this.#uses++
    const result = await task(this.values)
    this.#uses--
    if (!this.#isOver) return result
    this.#release()
    return undefined
  }

  /** The assignment is over: its computations are dropped, those that wait do not begin. */
  end(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#release()
  }

  #release(): void {
    if (this.#uses === 0) this.#giveBack(this.values)
  }
}

export class GradientBuffers {
  /** floats of a gradient */
  readonly length: number
  readonly #free: Float32Array[] = []

  constructor(length: number) {
    this.length = length
  }

  lease(): GradientLease {
    return new GradientLease(this.#free.pop() ?? new Float32Array(this.length), this.#takeBack)
  }

  #takeBack = (values: Float32Array): void => {
    if (this.#free.length < MOST_FREE) this.#free.push(values)
  }
}
