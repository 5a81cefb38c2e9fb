// What inner steps that stay with an executor must do, as cases that know no test runner: every executor on a device
// runs them all. They are held to steps over the host, which are exact.
import {
  initialParameters,
  meanOfStep,
  type ModelSpec,
  nextVersion,
  parameterLayout,
  parseModelSpec,
} from '@starling-grid/model'
import { createOptimizerState, type OptimizerSpec } from '@starling-grid/shaders'
import { createReferenceExecutor } from '../src/cpu/executor.ts'
import type { Batch, Executor, ResidentTraining } from '../src/graph/executor.ts'
import {
  AWKWARD_MODEL,
  awkwardBatch,
  expect,
  expectClose,
  type ExecutorCase,
  noise,
  type OpenSuiteExecutor,
} from './executor-suite.ts'

/** Statistics, a vector that decay leaves out, and more than one chunk of a workgroup. */
const NORMED_MODEL = parseModelSpec({
  name: 'normed',
  input: [2, 5, 5],
  layers: [
    { type: 'conv2d', name: 'a', out: 6, kernel: 3 },
    { type: 'batchnorm2d', name: 'b' },
    { type: 'relu' },
    { type: 'flatten' },
    { type: 'linear', name: 'c', out: 97 },
    { type: 'tanh' },
    { type: 'linear', name: 'd', out: 5 },
  ],
})

const SCHEDULE = { type: 'linear', to: 0.1, steps: 10 } as const
const OPTIMIZERS: readonly OptimizerSpec[] = [
  { type: 'sgd', lr: 0.1 },
  { type: 'sgd', lr: 0.05, momentum: 0.9, weightDecay: 0.1, decay: 'matrices', schedule: SCHEDULE },
  { type: 'sgd', lr: 0.05, momentum: 0.9, nesterov: true },
  { type: 'adam', lr: 0.01, weightDecay: 0.1 },
  { type: 'adamw', lr: 0.01, betas: [0.8, 0.99], weightDecay: 0.1, decay: 'matrices', schedule: SCHEDULE },
]
const STEPS = 4
/** Adam divides by roots of squares: what is nearly zero there moves far. */
const TOLERANCE = 2e-4

export const residentCases: readonly ExecutorCase[] = [
  ...OPTIMIZERS.flatMap((optimizer) =>
    [undefined, 0.05].map((clipNorm) => ({
      name: `inner steps that stay are those over the host: ${nameOf(optimizer, clipNorm)}`,
      run: (open: OpenSuiteExecutor) => stepsAsOverTheHost(open, { optimizer, clipNorm }),
    })),
  ),
  { name: 'statistics follow what inner steps that stay measured', run: followsStatistics },
  { name: 'other tasks between inner steps that stay change nothing', run: keepsApart },
  { name: 'a step that is not wanted leaves the parameters as they are', run: leavesOut },
  { name: 'a gradient that is not finite makes no step', run: refusesOddGradients },
  { name: 'parameters that are set anew meet the vectors of the steps before', run: keepsVectors },
]

function nameOf({ type, decay = 'all', ...spec }: OptimizerSpec, clipNorm: number | undefined): string {
  const momentum = 'nesterov' in spec ? 'nesterov, ' : 'momentum, '
  const clipped = clipNorm === undefined ? '' : ', clipped'
  return `${type}, ${'momentum' in spec ? momentum : ''}decay of ${decay}${clipped}`
}

interface StepRule {
  readonly optimizer: OptimizerSpec
  readonly clipNorm?: number | undefined
}

const SGD: StepRule = { optimizer: { type: 'sgd', lr: 0.1, momentum: 0.9 } }

interface OpenedTraining {
  readonly executor: Executor
  readonly training: ResidentTraining
  step(batch: Batch, wanted?: () => boolean): ReturnType<ResidentTraining['step']>
  parameters(): Promise<Float32Array>
}

/** Two micro-batches in each batch of seven. */
async function withTraining(
  open: OpenSuiteExecutor,
  { spec = AWKWARD_MODEL, ...rule }: StepRule & { readonly spec?: ModelSpec },
  task: (opened: OpenedTraining) => Promise<void>,
): Promise<void> {
  const executor = await open(spec, { maxMicroBatch: 4 })
  try {
    const { optimizer, clipNorm } = rule
    const training = await executor.resident?.(optimizer)
    if (training === undefined) throw new Error('expected an executor that keeps inner steps')
    const state = createOptimizerState(optimizer, 0)
    await training.set(initialParameters(spec, 1))
    const { total } = parameterLayout(spec)
    await task({
      executor,
      training,
      step: (batch, wanted = () => true) => training.step(batch, { optimizer, state, clipNorm, wanted }),
      parameters: async () => {
        const into = new Float32Array(total).fill(NaN)
        await training.read(into)
        return into
      },
    })
  } finally {
    executor.destroy()
  }
}

/** Exact steps over the host, with gradients of the plain executor. */
async function overTheHost(spec: ModelSpec, rule: StepRule, batches: readonly Batch[]): Promise<Float32Array> {
  const layout = parameterLayout(spec)
  const executor = createReferenceExecutor(spec)
  const { optimizer, clipNorm } = rule
  const version = {
    parameters: initialParameters(spec, 1),
    optimizerState: createOptimizerState(optimizer, layout.trained),
  }
  const gradient = new Float32Array(layout.total)
  for (const batch of batches) {
    executor.loadParameters(version.parameters)
    const { targets } = await executor.gradient(batch, gradient)
    nextVersion({ layout, optimizer }, version, meanOfStep({ layout }, gradient, { targets, clipNorm }), version)
  }
  return version.parameters
}

function batches(count = STEPS): Batch[] {
  return Array.from({ length: count }, (_, i) => awkwardBatch(7, i))
}

function normedBatches(): Batch[] {
  return Array.from({ length: STEPS }, (_, i) => ({
    samples: 4,
    x: noise(4 * 50, i),
    y: Int32Array.from({ length: 4 }, (_, k) => (k + i) % 5),
  }))
}

async function stepsAsOverTheHost(open: OpenSuiteExecutor, rule: StepRule): Promise<void> {
  await withTraining(open, rule, async ({ step, parameters }) => {
    for (const batch of batches()) expect((await step(batch)).finite, 'the gradient is finite')
    expectClose(await parameters(), await overTheHost(AWKWARD_MODEL, rule, batches()), TOLERANCE, 'parameters')
  })
}

async function followsStatistics(open: OpenSuiteExecutor): Promise<void> {
  await withTraining(open, { spec: NORMED_MODEL, ...SGD }, async ({ step, parameters }) => {
    for (const batch of normedBatches()) await step(batch)
    expectClose(await parameters(), await overTheHost(NORMED_MODEL, SGD, normedBatches()), TOLERANCE, 'parameters')
  })
}

async function keepsApart(open: OpenSuiteExecutor): Promise<void> {
  await withTraining(open, SGD, async ({ executor, step, parameters }) => {
    const into = new Float32Array(parameterLayout(AWKWARD_MODEL).total)
    for (const batch of batches()) {
      executor.loadParameters(initialParameters(AWKWARD_MODEL, 5))
      await Promise.all([step(batch), executor.gradient(awkwardBatch(5, 9), into)])
      await executor.evaluate(awkwardBatch(2, 8))
    }
    expectClose(await parameters(), await overTheHost(AWKWARD_MODEL, SGD, batches()), TOLERANCE, 'parameters')
  })
}

async function leavesOut(open: OpenSuiteExecutor): Promise<void> {
  await withTraining(open, SGD, async ({ step, parameters }) => {
    const [first, second] = batches(2)
    if (!first || !second) throw new Error('expected two batches')
    await step(first)
    const before = await parameters()
    const sums = await step(second, () => false)
    expect(sums.finite && sums.targets === 7, 'its sums are told')
    expect(
      (await parameters()).every((value, i) => value === before[i]),
      'parameters stay',
    )
    await step(second)
    expectClose(await parameters(), await overTheHost(AWKWARD_MODEL, SGD, [first, second]), TOLERANCE, 'parameters')
  })
}

async function refusesOddGradients(open: OpenSuiteExecutor): Promise<void> {
  await withTraining(open, SGD, async ({ step, parameters }) => {
    const before = await parameters()
    const batch = awkwardBatch(7)
    const odd = Float32Array.from(batch.x, (value, i) => (i === 30 ? Infinity : value))
    let asked = 0
    const { finite } = await step({ ...batch, x: odd }, () => ++asked > 0)
    expect(!finite && asked === 0, 'the executor says so, and asks for no consent')
    expect(
      (await parameters()).every((value, i) => value === before[i]),
      'parameters stay',
    )
  })
}

async function keepsVectors(open: OpenSuiteExecutor): Promise<void> {
  await withTraining(open, SGD, async ({ training, step, parameters }) => {
    const [first, second] = batches(2)
    if (!first || !second) throw new Error('expected two batches')
    await step(first)
    await training.set(initialParameters(AWKWARD_MODEL, 1))
    await step(second)
    const alone = await overTheHost(AWKWARD_MODEL, SGD, [second])
    const after = await parameters()
    const moved = after.reduce((sum, value, i) => Math.max(sum, Math.abs(value - (alone[i] ?? 0))), 0)
    expect(moved > 1e-4, 'the momentum of the first step joins the second')
  })
}
