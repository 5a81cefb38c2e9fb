// One thing after another.

/** Runs tasks one at a time, in the order of the calls: each begins when the one before has ended, however it ended. */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve()

  /** @throws what `task` throws */
  run<T>(task: () => T | Promise<T>): Promise<T> {
    const done = this.#last.then(task)
    this.#last = done.catch(() => undefined)
    return done
  }
}
