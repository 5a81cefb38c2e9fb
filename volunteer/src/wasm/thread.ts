// What a thread of the host does for the executor on WebAssembly: it takes pieces of passes until it is told to end. It
// sleeps in between, and hears nothing else.
import { Control, type RunPiece } from './control.ts'

/** Where a pass finds its function and its addresses. */
export interface PassPlace {
  readonly function: number
  /** address of its table of addresses */
  readonly table: number
}

/** First message to a thread. */
export interface ThreadStart {
  readonly module: WebAssembly.Module
  readonly memory: WebAssembly.Memory
  readonly passes: readonly PassPlace[]
  /** bytes at the beginning of the memory */
  readonly controlWords: number
  /** address of its own memory */
  readonly scratch: number
  readonly threads: number
}

/** From a thread: a command is over, or the thread is. */
export type ThreadAnswer =
  | { readonly type: 'done'; readonly command: number }
  | { readonly type: 'failed'; readonly why: string }

/** The functions of all passes on this thread. */
export function bindPasses(
  module: WebAssembly.Module,
  { memory, passes, scratch }: Pick<ThreadStart, 'memory' | 'passes' | 'scratch'>,
): readonly RunPiece[] {
  const { exports } = new WebAssembly.Instance(module, { host: { memory } })
  return passes.map(({ function: number, table }) => {
    const run = exports[String(number)]
    if (typeof run !== 'function') throw new Error(`internal: the module has no function ${number}`)
    return (piece, samples, adds) => void run(piece, samples, adds, scratch, table)
  })
}

/** Serves until the program ends. Blocks the thread. */
export function serveThread(start: ThreadStart, answer: (answer: ThreadAnswer) => void): void {
  try {
    const runs = bindPasses(start.module, start)
    const control = new Control(new Int32Array(start.memory.buffer, 0, start.controlWords))
    for (let last = 0; ;) {
      const command = control.await(last)
      if (!command) return
      last = command.number
      for (let pass = command.first; pass < command.end; pass++) {
        const run = runs[pass]
        if (!run) throw new Error(`internal: no pass ${pass}`)
        const ended = control.work(pass, start.threads, (piece) => run(piece, command.samples, Number(command.adds)))
        if (pass < command.end - 1) control.meet(pass, start.threads)
        else if (ended) answer({ type: 'done', command: last })
      }
    }
  } catch (error) {
    answer({ type: 'failed', why: error instanceof Error ? error.message : String(error) })
  }
}
