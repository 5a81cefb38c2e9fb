// What every Executor must do, as cases that know no test runner: the reference and WebGPU in every host run them all.
import {
  initialParameters,
  parameterCount,
  parameterLayout,
  parseModelSpec,
  randomWords,
  type ModelSpec,
} from '@starling-grid/model'
import { isGridError } from '@starling-grid/protocol'
import type { Batch, BatchSums, EarlyRanges, Executor } from '../src/graph/executor.ts'

export type OpenSuiteExecutor = (spec: ModelSpec, options?: { readonly maxMicroBatch?: number }) => Promise<Executor>

export interface ExecutorCase {
  readonly name: string
  run(open: OpenSuiteExecutor): Promise<void>
}

export const executorCases: readonly ExecutorCase[] = [
  { name: 'a gradient is the sum over its samples, however the batch is cut', run: sumsOverSamples },
  { name: 'fewer samples after more leave nothing of the earlier batch behind', run: forgetsEarlierBatches },
  { name: 'the same batch gives the same bits', run: repeatsBits },
  { name: 'the gradient is that of the loss', run: matchesDifferences },
  { name: 'sums and predictions agree', run: countsCorrect },
  { name: 'evaluation and prediction do not disturb training', run: keepsTrainingApart },
  { name: 'two gradients asked for at once do not mix', run: takesTurns },
  { name: 'pieces of a gradient are handed out in order, as they stay, before the rest is there', run: handsOutPieces },
  { name: 'new parameters count from the next call on', run: replacesParameters },
  { name: 'an empty batch has no loss and no gradient', run: takesNothing },
  { name: 'a class that the model does not have is refused', run: refusesWrongClass },
]

const CLASSES = 5
const CAPACITY = 4

/** Every kind of layer, at sizes that fit no tile. */
export const AWKWARD_MODEL = parseModelSpec({
  name: 'awkward',
  input: [3, 11, 9],
  layers: [
    { type: 'conv2d', name: 'a', out: 6, kernel: 3, stride: 2, padding: 1, groups: 3 },
    { type: 'tanh' },
    { type: 'avgpool2d', kernel: 3, stride: 2, padding: 1 },
    { type: 'conv2d', name: 'b', out: 5, kernel: 2, bias: false },
    { type: 'relu' },
    { type: 'maxpool2d', kernel: 2, stride: 1 },
    { type: 'flatten' },
    { type: 'linear', name: 'c', out: 7 },
    { type: 'sigmoid' },
    { type: 'linear', name: 'd', out: CLASSES },
  ],
})

const REGRESSION_MODEL = parseModelSpec({
  name: 'regression',
  input: [3, 6],
  loss: 'mse',
  layers: [
    { type: 'linear', name: 'a', out: 9 },
    { type: 'sigmoid' },
    { type: 'linear', name: 'b', out: 2, bias: false },
  ],
})

/** Values in [−1, 1) that depend on nothing but the arguments. */
export function noise(length: number, stream: number): Float32Array<ArrayBuffer> {
  const word = randomWords(11, stream)
  return Float32Array.from({ length }, (_, i) => word(i) / 2 ** 31 - 1)
}

export function awkwardBatch(samples: number, stream = 0): Batch {
  const word = randomWords(13, stream)
  return {
    samples,
    x: noise(samples * 3 * 11 * 9, stream),
    y: Int32Array.from({ length: samples }, (_, i) => word(i) % CLASSES),
  }
}

interface BatchOutcome {
  readonly sums: BatchSums
  readonly gradient: Float32Array
}

async function gradientOf(executor: Executor, batch: Batch, spec: ModelSpec = AWKWARD_MODEL): Promise<BatchOutcome> {
  const gradient = new Float32Array(parameterCount(spec)).fill(NaN)
  return { sums: await executor.gradient(batch, gradient), gradient }
}

async function withAwkward(open: OpenSuiteExecutor, task: (executor: Executor) => Promise<void>): Promise<void> {
  const executor = await open(AWKWARD_MODEL, { maxMicroBatch: CAPACITY })
  try {
    executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
    await task(executor)
  } finally {
    executor.destroy()
  }
}

function sumsOverSamples(open: OpenSuiteExecutor): Promise<void> {
  return withAwkward(open, async (executor) => {
    const whole = await gradientOf(executor, awkwardBatch(11))
    const sum = new Float32Array(whole.gradient.length)
    let lossSum = 0
    for (let i = 0; i < 11; i++) {
      const one = await gradientOf(executor, slice(awkwardBatch(11), i))
      one.gradient.forEach((value, j) => {
        sum[j] = (sum[j] ?? 0) + value
      })
      lossSum += one.sums.lossSum
    }
    expectClose(whole.gradient, sum, 1e-5, 'gradient')
    expectClose([whole.sums.lossSum], [lossSum], 1e-5, 'loss')
    expect(whole.sums.targets === 11, 'targets are the samples')
  })
}

function forgetsEarlierBatches(open: OpenSuiteExecutor): Promise<void> {
  return withAwkward(open, async (executor) => {
    const fresh = await gradientOf(executor, awkwardBatch(1))
    await gradientOf(executor, {
      ...awkwardBatch(CAPACITY, 5),
      x: noise(CAPACITY * 3 * 11 * 9, 5).map((value) => value * 1e3),
    })
    expectEqual((await gradientOf(executor, awkwardBatch(1))).gradient, fresh.gradient, 'gradient')
  })
}

function repeatsBits(open: OpenSuiteExecutor): Promise<void> {
  return withAwkward(open, async (executor) => {
    const first = await gradientOf(executor, awkwardBatch(7))
    for (let i = 0; i < 3; i++) {
      const again = await gradientOf(executor, awkwardBatch(7))
      expectEqual(again.gradient, first.gradient, 'gradient')
      expect(again.sums.lossSum === first.sums.lossSum, 'losses are equal')
    }
  })
}

/** A cut at every layer, last first. The batch is cut too: pieces are final in its last micro-batch only. */
function handsOutPieces(open: OpenSuiteExecutor): Promise<void> {
  return withAwkward(open, async (executor) => {
    const whole = await gradientOf(executor, awkwardBatch(7))
    const ranges = layerRanges(AWKWARD_MODEL)
    for (let round = 0; round < 2; round++) {
      const into = new Float32Array(whole.gradient.length).fill(NaN)
      const pieces: Float32Array[] = []
      let untouched = 0
      const early: EarlyRanges = {
        ranges,
        onFinal(index) {
          expect(index === pieces.length, `piece ${pieces.length} comes next, got ${index}`)
          pieces.push(into.slice(ranges[index]?.start, ranges[index]?.end))
          untouched += into.filter(Number.isNaN).length
        },
      }
      const sums = await executor.gradient(awkwardBatch(7), into, early)
      expect(pieces.length === ranges.length, `${ranges.length} pieces, got ${pieces.length}`)
      expect(untouched > 0, 'the first pieces came before the last')
      for (const [i, { start, end }] of ranges.entries())
        expectEqual(pieces[i] ?? [], whole.gradient.subarray(start, end), `piece ${i}`)
      expectEqual(into, whole.gradient, 'gradient')
      expect(sums.lossSum === whole.sums.lossSum, 'losses are equal')
    }
  })
}

function layerRanges(spec: ModelSpec): EarlyRanges['ranges'] {
  const { entries, total } = parameterLayout(spec)
  const starts = entries.filter(({ name }) => name.endsWith('weight')).map(({ offset }) => offset)
  return starts.map((start, i) => ({ start, end: starts[i + 1] ?? total })).reverse()
}

/** Central differences along random directions of a smooth model, so that the step need not be tiny. */
async function matchesDifferences(open: OpenSuiteExecutor): Promise<void> {
  const executor = await open(REGRESSION_MODEL)
  try {
    const parameters = initialParameters(REGRESSION_MODEL, 3)
    const batch = { samples: 5, x: noise(5 * 18, 1), y: noise(5 * 6, 2) }
    executor.loadParameters(parameters)
    const { gradient, sums } = await gradientOf(executor, batch, REGRESSION_MODEL)
    expect(sums.targets === 30, 'every output is a target')
    expect(sums.correct === 0, 'values are never correct')
    for (let direction = 3; direction < 6; direction++) {
      const along = noise(parameters.length, direction)
      const slope = gradient.reduce((sum, value, i) => sum + value * (along[i] ?? 0), 0)
      expectClose([slope], [await slopeOf(executor, batch, parameters, along)], 1e-2, 'slope')
    }
  } finally {
    executor.destroy()
  }
}

async function slopeOf(
  executor: Executor,
  batch: Batch,
  parameters: Float32Array,
  along: Float32Array,
): Promise<number> {
  const step = 3e-3
  const losses: number[] = []
  for (const sign of [1, -1]) {
    executor.loadParameters(parameters.map((value, i) => value + sign * step * (along[i] ?? 0)))
    losses.push((await executor.evaluate(batch)).lossSum)
  }
  return ((losses[0] ?? 0) - (losses[1] ?? 0)) / (2 * step)
}

function countsCorrect(open: OpenSuiteExecutor): Promise<void> {
  return withAwkward(open, async (executor) => {
    const batch = awkwardBatch(9)
    const logits = await executor.predict(batch.x, batch.samples)
    let [correct, lossSum] = [0, 0]
    for (let i = 0; i < batch.samples; i++) {
      const row = [...logits.subarray(i * CLASSES, (i + 1) * CLASSES)]
      const label = batch.y[i] ?? -1
      correct += row.indexOf(Math.max(...row)) === label ? 1 : 0
      lossSum += Math.log(row.reduce((sum, value) => sum + Math.exp(value), 0)) - (row[label] ?? NaN)
    }
    const sums = await executor.evaluate(batch)
    expect(sums.correct === correct, `correct is ${sums.correct}, predictions say ${correct}`)
    expectClose([sums.lossSum], [lossSum], 1e-5, 'loss')
  })
}

function keepsTrainingApart(open: OpenSuiteExecutor): Promise<void> {
  return withAwkward(open, async (executor) => {
    const before = await gradientOf(executor, awkwardBatch(6))
    await executor.evaluate(awkwardBatch(5, 8))
    await executor.predict(awkwardBatch(3, 9).x, 3)
    expectEqual((await gradientOf(executor, awkwardBatch(6))).gradient, before.gradient, 'gradient')
  })
}

function takesTurns(open: OpenSuiteExecutor): Promise<void> {
  return withAwkward(open, async (executor) => {
    const batches = [awkwardBatch(9, 1), awkwardBatch(10, 2)]
    const together = await Promise.all(batches.map((batch) => gradientOf(executor, batch)))
    for (const [i, batch] of batches.entries())
      expectEqual((await gradientOf(executor, batch)).gradient, together[i]?.gradient ?? [], `gradient ${i}`)
  })
}

function replacesParameters(open: OpenSuiteExecutor): Promise<void> {
  return withAwkward(open, async (executor) => {
    const first = await gradientOf(executor, awkwardBatch(2))
    const other = initialParameters(AWKWARD_MODEL, 2)
    executor.loadParameters(other)
    other.fill(NaN) // theirs again as soon as the call returns
    const second = await gradientOf(executor, awkwardBatch(2))
    expect(
      second.sums.lossSum !== first.sums.lossSum && Number.isFinite(second.sums.lossSum),
      'the loss follows the parameters',
    )
    executor.loadParameters(initialParameters(AWKWARD_MODEL, 1))
    expectEqual((await gradientOf(executor, awkwardBatch(2))).gradient, first.gradient, 'gradient')
  })
}

function takesNothing(open: OpenSuiteExecutor): Promise<void> {
  return withAwkward(open, async (executor) => {
    const { sums, gradient } = await gradientOf(executor, awkwardBatch(0))
    expect(sums.lossSum === 0 && sums.targets === 0 && sums.correct === 0, 'sums are zero')
    expect(
      gradient.every((value) => value === 0),
      'the gradient is zero',
    )
    expect((await executor.predict(new Float32Array(0), 0)).length === 0, 'nothing is predicted')
  })
}

function refusesWrongClass(open: OpenSuiteExecutor): Promise<void> {
  return withAwkward(open, async (executor) => {
    const refusal = await gradientOf(executor, { ...awkwardBatch(2), y: Int32Array.of(0, CLASSES) }).catch(
      (error: unknown) => error,
    )
    expect(isGridError(refusal) && refusal.code === 'dataset-unreadable', `refused with ${String(refusal)}`)
    expect((await gradientOf(executor, awkwardBatch(2))).sums.targets === 2, 'it works on')
  })
}

function slice({ x, y }: Batch, i: number): Batch {
  const size = 3 * 11 * 9
  return { samples: 1, x: x.slice(i * size, (i + 1) * size), y: y.slice(i, i + 1) }
}

export function expect(holds: boolean, what: string): void {
  if (!holds) throw new Error(`expected that ${what}`)
}

function expectEqual(ours: ArrayLike<number>, wanted: ArrayLike<number>, what: string): void {
  for (let i = 0; i < wanted.length; i++)
    if (!Object.is(ours[i], wanted[i])) throw new Error(`${what}[${i}] is ${ours[i]}, expected ${wanted[i]}`)
}

/** ‖ours − wanted‖ ≤ tolerance · ‖wanted‖ */
export function expectClose(ours: ArrayLike<number>, wanted: ArrayLike<number>, tolerance: number, what: string): void {
  let [difference, norm] = [0, 0]
  for (let i = 0; i < Math.max(ours.length, wanted.length); i++) {
    difference += ((ours[i] ?? NaN) - (wanted[i] ?? NaN)) ** 2
    norm += (wanted[i] ?? NaN) ** 2
  }
  const error = difference === 0 ? 0 : Math.sqrt(difference / norm)
  if (!(error <= tolerance)) throw new Error(`${what} is off by ${error}, more than ${tolerance}`)
}
