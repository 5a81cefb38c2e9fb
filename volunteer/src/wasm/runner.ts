// Runs a graph on WebAssembly. Inputs are written to and results read from its memory; nothing is allocated in between.
import { type Clock, SerialQueue } from '@starling-grid/protocol'
import { lastSize, type PackedStorage } from '@starling-grid/shaders'
import type { FloatRange } from '../floats.ts'
import type { Graph } from '../graph/build.ts'
import { finalAfter } from '../graph/early-ranges.ts'
import { loadConstants } from '../graph/fixed.ts'
import { deviceRange, gather } from '../graph/flat-views.ts'
import type { GraphRunner, RunRequest, Values } from '../graph/runner.ts'
import { lengthFor, type Tensor } from '../graph/tensor.ts'
import { logitsPieces, placeColumns } from '../graph/vocabulary.ts'
import type { Command } from './control.ts'
import { type PieceCrew, OwnThread, ThreadCrew, type WasmThreads } from './crew.ts'
import type { PlannedWasmPass, WasmProgram } from './program.ts'

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT

export class WasmRunner implements GraphRunner {
  readonly graph: Graph
  readonly capacity: number
  readonly precision = 'f32'
  readonly packed: PackedStorage | undefined
  readonly #program: WasmProgram
  readonly #crew: PieceCrew
  /** runs take place in the order in which they were asked for */
  readonly #queue = new SerialQueue()
  #waiting = 0
  /** of what the pieces of the passes were counted last */
  #samples = -1

  constructor(graph: Graph, program: WasmProgram, threads: WasmThreads | undefined, clock: Clock) {
    this.graph = graph
    this.capacity = program.plan.capacity
    this.packed = program.plan.graph.packed
    this.#program = program
    this.#crew = threads ? new ThreadCrew(program, threads) : new OwnThread(program, clock)
    loadConstants(this)
  }

  loadParameters(flat: Float32Array): void {
    if (this.#waiting === 0) return this.#writeParameters(flat)
    const kept = flat.slice()
    void this.#inTurn(async () => this.#writeParameters(kept))
  }

  loadFixed(index: number, values: Values): void {
    const held = this.#program.fixed[index]
    const Kind = values instanceof Int32Array ? Int32Array : Float32Array
    if (held && held.length >= values.length)
      new Kind(this.#program.memory.buffer, held.byteOffset, values.length).set(values)
  }

  run(request: RunRequest): Promise<Float32Array[]> {
    if (request.samples > this.capacity)
      throw new Error(`internal: ${request.samples} samples exceed the capacity of ${this.capacity}`)
    return this.#inTurn(() => this.#runNow(request))
  }

  destroy(): void {
    this.#crew.stop()
  }

  #inTurn<T>(task: () => Promise<T>): Promise<T> {
    this.#waiting++
    return this.#queue.run(task).finally(() => {
      this.#waiting--
    })
  }

  async #runNow(request: RunRequest): Promise<Float32Array[]> {
    const { samples, write, read = [], clearGradient = false } = request
    for (const [tensor, values] of write) this.#write(tensor, values)
    if (clearGradient)
      for (const { start, end } of this.#program.plan.cleared) this.#program.gradient.fill(0, start, end)
    if (samples !== this.#samples) {
      this.#crew.setPieces(this.#program.passes.map(({ pass }) => pass.pieces(samples)))
      this.#samples = samples
    }
    await this.#runSections(request)
    const { logits, output } = this.#program.plan.graph
    const isOfPieces = (tensor: Tensor): boolean => logits !== undefined && tensor.storage === output.storage
    const values = read.map((tensor) => (isOfPieces(tensor) ? undefined : this.#viewOf(tensor, samples).slice()))
    const made = values.includes(undefined) ? await this.#outputOfPieces(samples) : new Float32Array()
    return values.map((value) => value ?? made)
  }

  /** All pieces are made in the same place. */
  async #outputOfPieces(samples: number): Promise<Float32Array> {
    const { plan } = this.#program
    const { output } = plan.graph
    const all = new Float32Array(samples * output.size)
    const columns = lastSize(output.shape)
    let first = 0
    for (const { y, calls } of logitsPieces(plan.graph)) {
      const passes = plan.parts.logits.filter(({ origin }) => calls.has(origin.call))
      await this.#runPasses(passes, { samples, adds: false })
      const count = (y.size * columns) / output.size
      placeColumns(all, columns, { first, count, values: this.#viewOf(y, samples) })
      first += count
    }
    return all
  }

  /** A piece of the gradient is copied while the passes behind it run. */
  async #runSections({ parts, samples, clearGradient = false, gradientInto, early }: RunRequest): Promise<void> {
    const { plan } = this.#program
    const passes = parts.flatMap((part) => plan.parts[part])
    const ranges = gradientInto ? (early?.ranges ?? [{ start: 0, end: gradientInto.length }]) : []
    const ends = finalAfter(
      ranges.map((range) => deviceRange(plan.flat, range)),
      passes.map(writtenRanges),
    )
    const pass = { samples, adds: !clearGradient }
    let running = this.#runPasses(passes.slice(0, ends[0] ?? passes.length), pass)
    for (const [i, range] of ranges.entries()) {
      await running
      const last = i === ranges.length - 1
      running = this.#runPasses(passes.slice(ends[i], last ? passes.length : ends[i + 1]), pass)
      // what fails meanwhile is thrown below
      running.catch(() => undefined)
      if (gradientInto) this.#copyGradient(range, gradientInto)
      early?.onFinal(i)
    }
    await running
  }

  /** As few commands as the order of the passes allows. */
  async #runPasses(passes: readonly PlannedWasmPass[], run: Pick<Command, 'samples' | 'adds'>): Promise<void> {
    const numbers = passes.map((pass) => this.#numberOf(pass))
    for (let i = 0; i < numbers.length;) {
      const first = numbers[i] ?? 0
      let end = first + 1
      for (i++; numbers[i] === end; i++) end++
      await this.#crew.run({ ...run, first, end })
    }
  }

  #numberOf(pass: PlannedWasmPass): number {
    this.#numbers ??= new Map(this.#program.passes.map((planned, i) => [planned, i]))
    return this.#numbers.get(pass) ?? -1
  }

  #numbers: ReadonlyMap<PlannedWasmPass, number> | undefined

  #copyGradient(range: FloatRange, into: Float32Array): void {
    const { gradient, plan } = this.#program
    const { start, end } = deviceRange(plan.flat, range)
    gather(plan.flat, range, gradient.subarray(start, end), into)
  }

  #writeParameters(flat: Float32Array): void {
    for (const { offset, length, deviceOffset } of this.#program.plan.flat.views.values())
      this.#program.parameters.set(flat.subarray(offset, offset + length), deviceOffset)
  }

  #write(tensor: Tensor, values: Values): void {
    const place = this.#program.plan.placement.get(tensor.storage)
    if (!place) return
    const address = this.#program.addressOf(place)
    const Kind = values instanceof Int32Array ? Int32Array : Float32Array
    new Kind(this.#program.memory.buffer, address, values.length).set(values)
  }

  #viewOf(tensor: Tensor, samples: number): Float32Array {
    const place = this.#program.plan.placement.get(tensor.storage)
    if (!place) throw new Error(`internal: ${tensor.name} has no buffer`)
    return new Float32Array(this.#program.memory.buffer, this.#program.addressOf(place), lengthFor(tensor, samples))
  }
}

function writtenRanges({ resources }: PlannedWasmPass): FloatRange[] {
  return resources.flatMap(({ kind, byteOffset, bytes }) =>
    kind === 'gradient' ? [{ start: byteOffset / FLOAT_BYTES, end: (byteOffset + bytes) / FLOAT_BYTES }] : [],
  )
}
