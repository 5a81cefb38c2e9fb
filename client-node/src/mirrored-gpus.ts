// Several GPUs of this machine as one executor (`--gpus`): a thread for each, with memory that all share.
import { type ModelSpec, parameterCount } from '@starling-grid/model'
import { describeError, GridError } from '@starling-grid/protocol'
import type { Executor, ExecutorBounds } from '@starling-grid/volunteer'
import { mirroredExecutor, type MirroredOptions } from '@starling-grid/volunteer/mirrored'
import type { WantedExecutor } from './gpu-executor.ts'
import { type GpuSeat, OpeningTurns } from './gpu-seats.ts'
import { type GpuThreadParts, openGpuThread } from './gpu-thread.ts'

/** f32 vectors of the model's length that each device holds in this process: its gradient, its last parameters. */
const VECTORS_OF_EACH = 2

type MirroredGpusParts = Pick<GpuThreadParts, 'say' | 'spawn'> & Pick<MirroredOptions, 'clock'>

export class MirroredGpus {
  readonly #seats: readonly GpuSeat[]
  readonly #parts: MirroredGpusParts
  readonly #turns = new OpeningTurns()

  constructor(seats: readonly GpuSeat[], parts: MirroredGpusParts) {
    this.#seats = seats
    this.#parts = parts
  }

  /**
   * Adapters that cannot hold the model are left out, and said.
   * @throws GridError 'own-limit', or why the first adapter cannot when none can
   */
  async open({ bounds, ...size }: WantedExecutor): Promise<Executor> {
    const { say, clock } = this.#parts
    const maxBytes = bounds && bytesOfEach(size.spec, bounds, this.#seats.length)
    const wanted = { ...size, bounds: bounds && { ...bounds, maxBytes: maxBytes ?? bounds.maxBytes } }
    const opening = this.#seats.map((seat) => openGpuThread(wanted, { ...this.#parts, seat, turns: this.#turns }))
    const outcomes = await Promise.allSettled(opening)
    const opened = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []))
    const reasons = outcomes.map((outcome) => (outcome.status === 'rejected' ? outcome.reason : undefined) as unknown)
    if (opened.length === 0) throw reasons[0]
    for (const [i, { adapter }] of this.#seats.entries())
      if (reasons[i] !== undefined) say(`${adapter.name} is left out of this job: ${describeError(reasons[i])}`)
    return mirroredExecutor(opened, { spec: size.spec, say, ...(clock ? { clock } : {}) })
  }
}

/** What its owner allows is of this machine and its GPUs together. @throws GridError 'own-limit' */
function bytesOfEach(spec: ModelSpec, { maxBytes }: Pick<ExecutorBounds, 'maxBytes'>, devices: number): number {
  const vectorBytes = Float32Array.BYTES_PER_ELEMENT * parameterCount(spec)
  const each = Math.floor(maxBytes / devices) - VECTORS_OF_EACH * vectorBytes
  if (each > 0) return each
  throw new GridError(
    'own-limit',
    `expected room for a gradient and a copy of the parameters for each of ${devices} adapters, ` +
      `got ${Math.round(maxBytes / 1e6)} MB beside what the member holds; ` +
      'raise --max-memory, or name fewer with --gpus',
  )
}
