// Runs a graph with the plain TypeScript references: slow, exact enough to be the truth for GPUs, and present
// everywhere.

import { type Clock, SerialQueue, systemClock } from '@starling-grid/protocol'
import { runReference, type KernelCall, type PackedStorage } from '@starling-grid/shaders'
import type { FloatRange } from '../floats.ts'
import type { Graph } from '../graph/build.ts'
import { finalAfter } from '../graph/early-ranges.ts'
import { loadConstants } from '../graph/fixed.ts'
import type { GraphRunner, RunRequest, Values } from '../graph/runner.ts'
import { tensorsOf, type Call } from '../graph/storages.ts'
import { lengthFor, type Tensor } from '../graph/tensor.ts'

/** Samples between two chances for other work on the thread: some 50 ms of a small network. */
const REFERENCE_MICRO_BATCH = 16

export class ReferenceRunner implements GraphRunner {
  readonly graph: Graph
  readonly capacity: number
  readonly precision = 'f32'
  readonly #clock: Clock
  readonly #parameters: Float32Array
  readonly #gradient: Float32Array
  /** storage → elements; parameters are views into the flat vectors */
  readonly #arrays = new Map<number, Values>()
  readonly #fixed = new Map<number, Values>()
  /** work waits for its turn, as on a device queue */
  readonly #queue = new SerialQueue()

  constructor(graph: Graph, capacity = REFERENCE_MICRO_BATCH, clock: Clock = systemClock) {
    this.graph = graph
    this.#clock = clock
    this.capacity = capacity
    this.#parameters = new Float32Array(graph.parameterCount)
    this.#gradient = new Float32Array(graph.parameterCount)
    loadConstants(this)
  }

  loadParameters(flat: Float32Array): void {
    const copy = flat.slice()
    this.#queue.run(() => this.#parameters.set(copy))
  }

  get packed(): PackedStorage | undefined {
    return this.graph.packed
  }

  loadFixed(index: number, values: Values): void {
    this.#fixed.set(index, values)
  }

  run(request: RunRequest): Promise<Float32Array[]> {
    this.#queue.run(() => this.#yieldToEventLoop())
    return this.#queue.run(() => this.#runNow(request))
  }

  destroy(): void {
    this.#arrays.clear()
  }

  async #runNow(request: RunRequest): Promise<Float32Array[]> {
    const { samples, write, read = [], clearGradient } = request
    for (const [tensor, values] of write) this.#arrays.set(tensor.storage, values.slice())
    if (clearGradient) this.#gradient.fill(0)
    await this.#runParts(request)
    return read.map((tensor) => Float32Array.from(this.#array(tensor, samples).subarray(0, lengthFor(tensor, samples))))
  }

  async #runParts({ samples, parts, gradientInto, early }: RunRequest): Promise<void> {
    const calls = parts.flatMap((part) => this.graph[part] ?? [])
    const ranges = (gradientInto && early?.ranges) ?? []
    const cuts = finalAfter(ranges, calls.map(writtenRanges))
    for (const [index, { start, end }] of ranges.entries()) {
      for (const call of calls.slice(cuts[index - 1] ?? 0, cuts[index])) this.#runCall(call, samples)
      gradientInto?.set(this.#gradient.subarray(start, end), start)
      early?.onFinal(index)
      await this.#yieldToEventLoop()
    }
    for (const call of calls.slice(cuts.at(-1) ?? 0)) this.#runCall(call, samples)
    if (ranges.length === 0) gradientInto?.set(this.#gradient)
  }

  #runCall(call: KernelCall<Tensor>, samples: number): void {
    const operands = Object.fromEntries(
      Object.entries(call.operands).map(([name, tensor]) => [name, this.#array(tensor, samples)]),
    )
    runReference({ ...call, operands } as KernelCall<Values>, samples)
    if (call.kernel === 'unpack.forward') return
    for (const { role, storage } of tensorsOf(call)) if (role === 'unpacked') this.#arrays.delete(storage)
  }

  /** Lets timers and sockets of this thread have their turn. */
  #yieldToEventLoop(): Promise<void> {
    return this.#clock.sleep(0)
  }

  #array(tensor: Tensor, samples: number): Values {
    if (tensor.role === 'parameter') return this.#parameters.subarray(tensor.offset, tensor.offset + tensor.size)
    if (tensor.role === 'parameterGradient') return this.#gradient.subarray(tensor.offset, tensor.offset + tensor.size)
    if (tensor.role === 'fixed') return this.#fixedTensor(tensor)
    const existing = this.#arrays.get(tensor.storage)
    if (existing && existing.length >= lengthFor(tensor, samples)) return existing
    const fresh = new Float32Array(lengthFor(tensor, samples))
    this.#arrays.set(tensor.storage, fresh)
    return fresh
  }

  #fixedTensor({ name, offset, start, size }: Tensor): Values {
    const values = this.#fixed.get(offset)
    if (!values) throw new Error(`internal: ${name} was not given`)
    return start === undefined ? values : values.subarray(start, start + size)
  }
}

function writtenRanges(call: Call): FloatRange[] {
  return tensorsOf(call).flatMap(({ role, offset, size }) =>
    role === 'parameterGradient' ? [{ start: offset, end: offset + size }] : [],
  )
}
