// The Executor over any GraphRunner: cuts batches into micro-batches, adds up their sums. Independent of devices.
import { tallyKind } from '@starling-grid/model'
import { SerialQueue } from '@starling-grid/protocol'
import { meanGradient } from '@starling-grid/shaders'
import { allFinite } from '../floats.ts'
import { checkBatch, checkInput, countTargets, microBatches, piecesOf } from './batches.ts'
import type { Graph, GraphPart } from './build.ts'
import type { AdapterDescription, Batch, BatchSums, EarlyRanges, Executor } from './executor.ts'
import { afterGood, afterOverflow, FIRST_SCALE, type LossScale } from './loss-scale.ts'
import { lossRule } from './losses.ts'
import type { GraphRunner, RunRequest } from './runner.ts'
import { tallyOf } from './tally.ts'

const TRAIN: readonly GraphPart[] = ['forward', 'loss', 'backward']
const EVALUATE: readonly GraphPart[] = ['evaluation', 'loss']

export function graphExecutor(runner: GraphRunner, adapter: AdapterDescription): Executor {
  const { graph } = runner
  const queue = new SerialQueue() // two batches at once would mix their gradients
  const scaling = { now: FIRST_SCALE }
  return {
    adapter,
    loadParameters(flat) {
      if (flat.length !== graph.parameterCount)
        throw new Error(`internal: the model has ${graph.parameterCount} parameters and gets ${flat.length}`)
      runner.loadParameters(flat)
    },
    async gradient(batch, into, early) {
      if (into.length !== graph.parameterCount)
        throw new Error(`internal: the gradient has ${graph.parameterCount} elements, not ${into.length}`)
      checkBatch(graph, batch)
      if (batch.samples === 0) into.fill(0)
      return queue.run(() =>
        runner.precision === 'f32'
          ? gradientOf(runner, batch, { into, lossScale: 1, early })
          : scaledGradient(runner, batch, { into, scaling }),
      )
    },
    async evaluate(batch) {
      checkBatch(graph, batch)
      return queue.run(() => evaluate(runner, batch))
    },
    async predict(x, samples) {
      checkInput(graph, x, samples)
      return queue.run(() => predict(runner, x, samples))
    },
    async resident(optimizer) {
      const vectors = await runner.resident?.(optimizer)
      if (vectors === undefined) return undefined
      const { residentTraining } = await import('./resident-training.ts') // of jobs with inner steps, on devices
      const sums = (batch: Batch, lossScale: number) => gradientOf(runner, batch, { lossScale })
      return residentTraining({ runner, vectors, queue, scaling, sums })
    },
    destroy: () => runner.destroy(),
  }
}

/** Sums with what metrics need. */
async function evaluate(runner: GraphRunner, batch: Batch): Promise<BatchSums> {
  const { graph } = runner
  const kind = tallyKind(graph.spec, graph.output.shape)
  const pieces = microBatches(batch.samples, runner.capacity)
  const size = kind === undefined || kind === 'tokens' ? 0 : graph.output.size
  const outputs = new Float32Array(batch.samples * size)
  const options = () => ({ parts: EVALUATE })
  const sums = await sumOver(runner, batch, pieces, size === 0 ? { options } : { options, outputs })
  return kind === undefined ? sums : { ...sums, tally: tallyOf(kind, outputs, batch.y, batch.samples) }
}

interface GradientOptions {
  /** absent: it stays on the device */
  readonly into?: Float32Array
  readonly lossScale: number
  readonly early?: EarlyRanges | undefined
}

function gradientOf(
  runner: GraphRunner,
  batch: Batch,
  { into, lossScale, early }: GradientOptions,
): Promise<BatchSums> {
  const options: RunOptions = (first, last) => ({
    parts: TRAIN,
    clearGradient: first,
    lossScale,
    ...(last && into ? { gradientInto: into, ...(early ? { early } : {}) } : {}),
  })
  return sumOver(runner, batch, piecesOf(runner.graph, batch, runner.capacity), { options })
}

/**
 * A batch that overflows is computed again with half the scale: skipping it would lose samples that others count on.
 * A loss that is not finite is the model's doing and is passed on. Nothing is handed out early: what overflowed is
 * known last.
 */
async function scaledGradient(
  runner: GraphRunner,
  batch: Batch,
  { into, scaling }: { readonly into: Float32Array; readonly scaling: { now: LossScale } },
): Promise<BatchSums> {
  for (;;) {
    const { scale } = scaling.now
    const sums = await gradientOf(runner, batch, { into, lossScale: scale })
    divide(into, scale, runner.graph)
    const finite = allFinite(into)
    const smaller = finite || !Number.isFinite(sums.lossSum) ? undefined : afterOverflow(scaling.now)
    if (finite) scaling.now = afterGood(scaling.now)
    if (!smaller) return sums
    scaling.now = smaller
  }
}

/** Statistics do not pass through the loss, so they were not scaled; they come last. */
function divide(gradient: Float32Array, scale: number, { parameters }: Graph): void {
  const scaled = gradient.subarray(0, parameters.find(({ kind }) => kind === 'statistic')?.offset)
  meanGradient(scaled, scale, scaled)
}

type RunOptions = (first: boolean, last: boolean) => Omit<RunRequest, 'samples' | 'write' | 'read'>

interface SumRequest {
  readonly options: RunOptions
  /** (samples, …output): gets the model's outputs */
  readonly outputs?: Float32Array
}

type MicroBatches = ReturnType<typeof microBatches>

/** Issues every micro-batch without waiting for the one before; the runner limits how many are under way. */
async function sumOver(
  runner: GraphRunner,
  batch: Batch,
  pieces: MicroBatches,
  { options, outputs }: SumRequest,
): Promise<BatchSums> {
  const { graph } = runner
  if (!graph.lossTensors) throw new Error('internal: the graph has no loss')
  const { target, loss, correct } = graph.lossTensors
  const keys = graph.keys && (batch.keys ?? Int32Array.from({ length: batch.samples }, (_, i) => i))
  const runs = pieces.map(({ start, count }, index) => {
    const write = [
      [graph.input, slice(batch.x, start, count, graph.input.size)] as const,
      [target, slice(batch.y, start, count, target.size)] as const,
      ...(graph.keys && keys ? [[graph.keys, keys.subarray(start, start + count)] as const] : []),
    ]
    const running = runner.run({
      samples: count,
      write,
      read: outputs === undefined ? [loss, correct] : [loss, correct, graph.output],
      ...options(index === 0, index === pieces.length - 1),
    })
    if (outputs === undefined) return running
    return running.then((read) => {
      if (read[2] !== undefined) outputs.set(read[2], start * graph.output.size)
      return read
    })
  })
  return addUp(await Promise.all(runs), graph, batch)
}

function addUp(runs: readonly Float32Array[][], graph: Graph, batch: Batch): BatchSums {
  let lossSum = 0
  let correctRows = 0
  for (const [loss, correct] of runs) {
    for (const value of loss ?? []) lossSum += value
    for (const value of correct ?? []) correctRows += value
  }
  return { lossSum, targets: countTargets(graph, batch.y), correct: lossRule(graph.spec.loss).counts ? correctRows : 0 }
}

async function predict(runner: GraphRunner, x: Batch['x'], samples: number): Promise<Float32Array> {
  const { input, output } = runner.graph
  const all = new Float32Array(samples * output.size)
  const runs = microBatches(samples, runner.capacity).map(async ({ start, count }) => {
    const write = [[input, slice(x, start, count, input.size)]] as const
    const [values] = await runner.run({ samples: count, write, parts: ['evaluation'], read: [output] })
    if (values) all.set(values, start * output.size)
  })
  await Promise.all(runs)
  return all
}

function slice(values: Batch['x'], start: number, count: number, size: number): Batch['x'] {
  return values.subarray(start * size, (start + count) * size)
}
