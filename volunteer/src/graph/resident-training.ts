// Inner steps over any runner that keeps vectors: the gradient stays, what comes back are the loss and one number.
import type { SerialQueue } from '@starling-grid/protocol'
import { clipFactor, deviceStep, stepScalars } from '@starling-grid/shaders'
import { checkBatch } from './batches.ts'
import type { Batch, BatchSums, ResidentStep, ResidentSums, ResidentTraining } from './executor.ts'
import { afterGood, afterOverflow, type LossScale } from './loss-scale.ts'
import type { GraphRunner, ResidentVectors } from './runner.ts'

export interface ResidentTrainingParts {
  readonly runner: GraphRunner
  readonly vectors: ResidentVectors
  /** of the executor: a gradient that another task asks for would take the place of this one */
  readonly queue: SerialQueue
  readonly scaling: { now: LossScale }
  /** runs a batch forward and backward; the gradient stays with the runner */
  sums(batch: Batch, lossScale: number): Promise<BatchSums>
}

export function residentTraining(parts: ResidentTrainingParts): ResidentTraining {
  const { runner, vectors, queue } = parts
  return {
    set(parameters) {
      if (parameters.length !== runner.graph.parameterCount)
        throw new Error(`internal: the model has ${runner.graph.parameterCount} parameters, not ${parameters.length}`)
      return queue.run(() => vectors.set(parameters))
    },
    async step(batch, step) {
      checkBatch(runner.graph, batch)
      return queue.run(() => made(parts, batch, step))
    },
    read: (into) => queue.run(() => vectors.read(into)),
  }
}

async function made(parts: ResidentTrainingParts, batch: Batch, step: ResidentStep): Promise<ResidentSums> {
  await parts.vectors.use()
  const { sums, squares, scale } = await gradientOf(parts, batch)
  const finite = squares !== undefined && Number.isFinite(sums.lossSum)
  if (finite && step.wanted(sums) && sums.targets > 0) {
    const share = 1 / sums.targets
    const norm = (Math.sqrt(squares) / scale) * share
    const clip = step.clipNorm === undefined ? 1 : clipFactor(norm, step.clipNorm)
    await parts.vectors.step(
      stepScalars(deviceStep(step.optimizer, step.state), { mean: (clip * share) / scale, share }),
    )
  }
  return { ...sums, finite }
}

interface ResidentGradient {
  readonly sums: BatchSums
  readonly squares: number | undefined
  /** what it is multiplied by, but for statistics */
  readonly scale: number
}

/** In f16 what overflows is computed again with a smaller scale, as in the executor's own gradient. */
async function gradientOf(parts: ResidentTrainingParts, batch: Batch): Promise<ResidentGradient> {
  const { runner, vectors, scaling, sums: run } = parts
  for (;;) {
    const scale = runner.precision === 'f32' ? 1 : scaling.now.scale
    const [sums, squares] = await Promise.all([run(batch, scale), vectors.squares()])
    if (runner.precision === 'f32') return { sums, squares, scale }
    const smaller = squares !== undefined || !Number.isFinite(sums.lossSum) ? undefined : afterOverflow(scaling.now)
    if (squares !== undefined) scaling.now = afterGood(scaling.now)
    if (!smaller) return { sums, squares, scale }
    scaling.now = smaller
  }
}
