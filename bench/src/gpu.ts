// A real GPU: large products and steps from small to GPT-2 with 124 million parameters, beside PyTorch on the same GPU;
// and where the time of a gradient goes, kernel by kernel.
import { readFile } from 'node:fs/promises'
import { type OpenGpu, openGpu } from '@starling-grid/client-node'
import { GridError } from '@starling-grid/protocol'
import { createGpuExecutor } from '@starling-grid/volunteer'
import { compare, type BenchComparison } from './compare.ts'
import { countGpuCalls, gpuCalls } from './gpu-calls.ts'
import { type OpenDevice, starlingOn, TUNING } from './libraries/starling.ts'
import { openTorch } from './libraries/torch.ts'
import { type PassTime, watchPasses } from './pass-times.ts'
import type { BenchPlace } from './places/place.ts'
import { rowText } from './row-text.ts'
import { type BenchRow, rounded } from './row.ts'
import { isWanted, type Suite, type SuiteOptions } from './suite.ts'
import { flopsOf, stepInputs, type StepModel, type StepTask } from './task.ts'

/** model, samples of a step, and the share of PyTorch's rate that we want */
const STEPS: readonly (readonly [StepModel, number, number])[] = [
  ['lenet5', 64, 1],
  ['mlp', 64, 1],
  ['gpt', 8, 1],
  ['gpt2', 1, 0.6],
  ['gpt2', 8, 0.6],
]
const SHORT_STEPS: typeof STEPS = [['lenet5', 8, 1]]
const SIZES = [512, 1024, 2048, 4096]
const SHORT_SIZES = [64]
const PRODUCT_REACH = 0.7
const WARMING_MS = 1000
/** Losses near 10.8 move by hundredths in the updates that are compared, and each is a sum of 50,257 exponentials. */
const LARGE_TOLERANCE = 1e-2
/** Starling, too: steps whose parameters stay on the device */
const INNER = 'starling-inner-steps'
/** kernels of a gradient that are told */
const TOLD = 16

export const gpuSuite: Suite = async (options) => {
  const gpu = await openGpu({ adapter: options.adapter, exactTimestamps: true })
  try {
    if (gpu.description.software && !options.short)
      throw new GridError(
        'usage',
        `expected a GPU, got the software adapter ${gpu.description.name}; choose one with --adapter, ` +
          'or see that rows work with --short',
      )
    return await measured(gpu, options)
  } finally {
    gpu.close()
  }
}

async function measured(gpu: OpenGpu, options: SuiteOptions): Promise<BenchRow[]> {
  const place = await openPlace(gpu)
  const rows: BenchRow[] = []
  try {
    for (const comparison of comparisons(options)) {
      const row = await compare(comparison, place, options)
      // a machine with a GPU is often lent for minutes
      options.log(rowText(row))
      rows.push(row)
    }
  } finally {
    await place.close()
  }
  for (const [model, samples] of options.short ? SHORT_STEPS : STEPS)
    if (isWanted(options, `kernels of ${stepName(model, samples)}`))
      rows.push(await kernelTimes({ kind: 'step', model, samples }, gpu, options))
  return rows
}

async function openPlace(gpu: OpenGpu): Promise<BenchPlace> {
  countGpuCalls()
  const torch = await openTorch(gpu.description.software ? 'cpu' : 'cuda')
  const isMissing = 'reason' in torch
  return {
    name: 'node',
    adapter: gpu.description.name,
    libraries: [
      starlingOn(deviceOf(gpu)),
      starlingOn(deviceOf(gpu), INNER, { innerSteps: true }),
      ...(isMissing ? [] : [torch]),
    ],
    missing: isMissing ? [torch] : [],
    gpuCalls: async () => gpuCalls(),
    close: async () => (isMissing ? undefined : torch.close()),
  }
}

function deviceOf({ device, description }: OpenGpu): OpenDevice {
  return { device, adapter: description, readText: (url) => readFile(url, 'utf8') }
}

function comparisons(options: SuiteOptions): BenchComparison[] {
  // small ones are checked as everywhere
  const check = options.short ? {} : ({ expectedFrom: 'pytorch' } as const)
  const products = (options.short ? SHORT_SIZES : SIZES).map((size): BenchComparison => {
    const task = { kind: 'matmul', size } as const
    return {
      name: `matmul ${size}`,
      task,
      unit: 'GFLOP/s',
      value: (ms) => flopsOf(task) / ms / 1e6,
      ...check,
      reach: { peer: 'pytorch', ratio: PRODUCT_REACH },
      only: (library) => library.name !== INNER,
    }
  })
  const steps = (options.short ? SHORT_STEPS : STEPS).map(([model, samples, ratio]): BenchComparison => ({
    name: stepName(model, samples),
    task: { kind: 'step', model, samples },
    unit: 'samples/s',
    value: (ms) => (1000 * samples) / ms,
    ...check,
    ...(model === 'gpt2' ? { tolerance: LARGE_TOLERANCE } : {}),
    reach: { peer: 'pytorch', ratio },
  }))
  return [...products, ...steps].filter(({ name }) => isWanted(options, name))
}

function stepName(model: StepModel, samples: number): string {
  return `step ${model} b${samples}`
}

/** Of one gradient: the time of all kernels, beside the wall's clock of a gradient whose kernels are not timed. */
async function kernelTimes(task: StepTask, gpu: OpenGpu, { log }: SuiteOptions): Promise<BenchRow> {
  const { spec, parameters, x, y } = stepInputs(task)
  const { adapter, ...device } = deviceOf(gpu)
  const executor = await createGpuExecutor({ ...device, adapter, spec, maxMicroBatch: task.samples, tuning: TUNING })
  const into = new Float32Array(parameters.length)
  const gradient = async (): Promise<number> => {
    const start = performance.now()
    await executor.gradient({ samples: task.samples, x, y }, into)
    return performance.now() - start
  }
  try {
    executor.loadParameters(parameters)
    const whole = await warmest(gradient)
    const watch = watchPasses(gpu.device)
    await gradient()
    return timesRow(task, { times: await watch.end(), whole, adapter: adapter.name, log })
  } finally {
    executor.destroy()
  }
}

/** ms of the fastest: the clock of a GPU rises to five times its rate while it is busy */
async function warmest(gradient: () => Promise<number>): Promise<number> {
  const until = performance.now() + WARMING_MS
  let fastest = await gradient()
  do fastest = Math.min(fastest, await gradient())
  while (performance.now() < until)
  return fastest
}

interface GradientTimes extends Pick<SuiteOptions, 'log'> {
  readonly times: readonly PassTime[]
  /** ms of a gradient as it is computed without being watched */
  readonly whole: number
  readonly adapter: string
}

function timesRow({ model, samples }: StepTask, { times, whole, adapter, log }: GradientTimes): BenchRow {
  const ours = rounded(times.reduce((sum, { ms }) => sum + ms, 0))
  const name = `kernels of ${stepName(model, samples)}`
  log(`${name}: ${ours} ms in ${times.reduce((sum, { dispatches }) => sum + dispatches, 0)} dispatches`)
  for (const { kernel, ms, dispatches } of times.slice(0, TOLD))
    log(`  ${ms.toFixed(3).padStart(9)} ms  ${String(dispatches).padStart(4)} × ${kernel}`)
  const head = { name, adapter, unit: 'ms', better: 'less' } as const
  const peer = 'a whole gradient'
  return {
    ...head,
    ours,
    min: ours,
    max: ours,
    peers: { [peer]: rounded(whole) },
    ratio: { [peer]: rounded(whole / ours) },
  }
}
