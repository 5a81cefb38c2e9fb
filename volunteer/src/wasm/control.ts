// What the threads of a program and their caller write to each other, in memory that they share: the command under way,
// and for each pass how many of its pieces were taken and which threads are through with it. Commands are runs of
// passes; a pass begins when every thread ended the one before.

/** Words of 32 bits at the beginning of the memory. */
const WORD = { command: 0, first: 1, end: 2, samples: 3, adds: 4, stop: 5 } as const
/** Passes behind them, each in a cache line of its own. */
const PASS_WORDS = 16
const FIRST_PASS = 16
const PASS = { next: 0, done: 1, pieces: 2 } as const
/** Looks at a word before a thread sleeps until it changes: some ten µs, less than waking it takes. */
const LOOKS = 2000

export interface Command {
  /** passes first … end − 1 */
  readonly first: number
  readonly end: number
  readonly samples: number
  /** gradients are added to what is there */
  readonly adds: boolean
}

/** The function of a pass, bound to its memory: computes one piece. */
export type RunPiece = (piece: number, samples: number, adds: number) => void

export function controlWords(passes: number): number {
  return FIRST_PASS + passes * PASS_WORDS
}

export class Control {
  readonly #words: Int32Array

  constructor(words: Int32Array) {
    this.#words = words
  }

  /** How many pieces each pass has, until this is said anew. No command is under way. */
  setPieces(pieces: readonly number[]): void {
    for (const [pass, count] of pieces.entries()) this.#words[wordOf(pass, PASS.pieces)] = count
  }

  pieces(pass: number): number {
    return this.#words[wordOf(pass, PASS.pieces)] ?? 0
  }

  /** Begins a command; the one before is over. */
  give({ first, end, samples, adds }: Command): void {
    for (let pass = first; pass < end; pass++) {
      this.#words[wordOf(pass, PASS.next)] = 0
      this.#words[wordOf(pass, PASS.done)] = 0
    }
    this.#words[WORD.first] = first
    this.#words[WORD.end] = end
    this.#words[WORD.samples] = samples
    this.#words[WORD.adds] = Number(adds)
    this.#announce()
  }

  /** The threads end. */
  stop(): void {
    this.#words[WORD.stop] = 1
    this.#announce()
  }

  /** Waits for a command behind number `last`. Undefined: there will be none. */
  await(last: number): (Command & { readonly number: number }) | undefined {
    const words = this.#words
    this.#waitWhile(WORD.command, last)
    if (words[WORD.stop] === 1) return undefined
    return {
      number: Atomics.load(words, WORD.command),
      first: words[WORD.first] ?? 0,
      end: words[WORD.end] ?? 0,
      samples: words[WORD.samples] ?? 0,
      adds: words[WORD.adds] === 1,
    }
  }

  /** One thread's part of a pass. True for the thread that ends it. */
  work(pass: number, threads: number, run: (piece: number) => void): boolean {
    const [next, done, pieces] = [wordOf(pass, PASS.next), wordOf(pass, PASS.done), this.pieces(pass)]
    for (;;) {
      const piece = Atomics.add(this.#words, next, 1)
      if (piece >= pieces) break
      run(piece)
    }
    if (Atomics.add(this.#words, done, 1) + 1 < threads) return false
    Atomics.notify(this.#words, done)
    return true
  }

  /**
   * Returns when every thread has done its part of the pass. Not for the last pass of a command: the next command may
   * count it anew.
   */
  meet(pass: number, threads: number): void {
    const done = wordOf(pass, PASS.done)
    for (;;) {
      const seen = Atomics.load(this.#words, done)
      if (seen === threads) return
      this.#waitWhile(done, seen)
    }
  }

  #announce(): void {
    Atomics.add(this.#words, WORD.command, 1)
    Atomics.notify(this.#words, WORD.command)
  }

  #waitWhile(word: number, value: number): void {
    for (let look = 0; look < LOOKS; look++) if (Atomics.load(this.#words, word) !== value) return
    while (Atomics.load(this.#words, word) === value) Atomics.wait(this.#words, word, value)
  }
}

function wordOf(pass: number, word: number): number {
  return FIRST_PASS + pass * PASS_WORDS + word
}
