// Who computes the passes of a program: threads of the host, or the thread that asks, between whose pieces others have
// their turn. Either way passes run in order, and results are the same bits.
import type { Clock } from '@starling-grid/protocol'
import { Control, type Command } from './control.ts'
import type { WasmProgram } from './program.ts'
import { bindPasses, type ThreadAnswer, type ThreadStart } from './thread.ts'

/** A thread of the host that runs `serveThread`. */
export interface WasmThread {
  start(message: ThreadStart): void
  stop(): void
}

export interface WasmThreads {
  readonly count: number
  /** `onAnswer`: hears the thread, and when it could not be started or ended by itself */
  spawn(onAnswer: (answer: ThreadAnswer) => void): WasmThread
}

export interface PieceCrew {
  setPieces(pieces: readonly number[]): void
  /** One at a time. @throws Error where a thread failed */
  run(command: Command): Promise<void>
  stop(): void
}

export class ThreadCrew implements PieceCrew {
  readonly #control: Control
  readonly #threads: readonly WasmThread[]
  #waiting: { resolve(): void; reject(error: Error): void } | undefined
  #failure: Error | undefined

  constructor(program: WasmProgram, threads: WasmThreads) {
    const { module, memory, places: passes, controlWords, scratch } = program
    this.#control = new Control(new Int32Array(memory.buffer, 0, controlWords))
    this.#threads = scratch.map((own) => {
      const thread = threads.spawn((answer) => this.#onAnswer(answer))
      thread.start({ module, memory, passes, controlWords, scratch: own, threads: threads.count })
      return thread
    })
  }

  setPieces(pieces: readonly number[]): void {
    this.#control.setPieces(pieces)
  }

  run(command: Command): Promise<void> {
    if (this.#failure) return Promise.reject(this.#failure)
    if (command.first >= command.end) return Promise.resolve()
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject }
      this.#control.give(command)
    })
  }

  stop(): void {
    this.#control.stop()
    for (const thread of this.#threads) thread.stop()
    this.#onAnswer({ type: 'failed', why: 'the executor was released' })
  }

  #onAnswer(answer: ThreadAnswer): void {
    const waiting = this.#waiting
    this.#waiting = undefined
    if (answer.type === 'done') return waiting?.resolve()
    this.#failure ??= new Error(`a thread of the executor ended: ${answer.why}`)
    waiting?.reject(this.#failure)
  }
}

/** ms of computing between two chances for other work on the thread */
const SLICE_MS = 20

export class OwnThread implements PieceCrew {
  readonly #runs: ReturnType<typeof bindPasses>
  readonly #clock: Clock
  #pieces: readonly number[] = []

  constructor({ module, memory, places: passes, scratch: [scratch = 0] }: WasmProgram, clock: Clock) {
    this.#runs = bindPasses(module, { memory, passes, scratch })
    this.#clock = clock
  }

  setPieces(pieces: readonly number[]): void {
    this.#pieces = pieces
  }

  async run({ first, end, samples, adds }: Command): Promise<void> {
    let since = this.#clock.now()
    for (const [i, run] of this.#runs.slice(first, end).entries())
      for (let piece = 0; piece < (this.#pieces[first + i] ?? 0); piece++) {
        run(piece, samples, Number(adds))
        if (this.#clock.now() - since < SLICE_MS) continue
        await this.#clock.sleep(0)
        since = this.#clock.now()
      }
    await this.#clock.sleep(0)
  }

  stop(): void {
    this.#pieces = []
  }
}
