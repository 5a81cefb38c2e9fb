// The seam between the runner and what it measures: a library on one adapter, in this process, in a page or in another
// process.
import type { BenchTask } from './task.ts'

export interface Library {
  /** as tables say it: `starling`, `tfjs-webgpu` */
  readonly name: string
  readonly version: string
  /** what computes */
  readonly adapter: string
  /** @throws when the library cannot do the task, with the reason as its message */
  prepare(task: BenchTask): Promise<PreparedTask>
}

/** A task with its inputs in the library's own memory. */
export interface PreparedTask {
  /**
   * Does the task from its beginning and returns its result, the same numbers in the same order for every library.
   * matmul: (size, size). conv2d: y, and in training dx and dweight, in PyTorch's shapes. Step: the loss after each
   * update minus that before the first; chain: the last vector.
   */
  result(): Promise<Float32Array>
  /** Does the task so many times and reads the last result. Milliseconds. */
  time(repeats: number): Promise<number>
  close(): Promise<void>
}

/** Something that was wanted in a comparison and is not in it. */
export interface Missing {
  readonly name: string
  readonly reason: string
}

/** What a peer's module offers, in Node and in a page alike. */
export interface PeerModule {
  openLibraries(
    where: 'node' | 'browser',
  ): Promise<{ readonly libraries: readonly Library[]; readonly missing: readonly Missing[] }>
}
