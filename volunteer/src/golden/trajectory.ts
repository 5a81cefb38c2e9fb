// A golden training run: the same batches, the same optimizer, every loss and the final parameters compared.

import {
  initialVersionState,
  meanOfStep,
  nextVersion,
  parameterLayout,
  parseModelSpec,
  parseOptimizerSpec,
  type ModelSpec,
  type ParameterEntry,
} from '@starling-grid/model'
import type { OptimizerSpec } from '@starling-grid/shaders'
import { buildGraph } from '../graph/build.ts'
import type { Executor } from '../graph/executor.ts'
import { graphExecutor } from '../graph/graph-executor.ts'
import {
  floatsOf,
  judge,
  orUnsupported,
  relativeError,
  tensorOf,
  toleranceFor,
  valuesOf,
  type Comparison,
  type GoldenBackend,
  type GoldenCase,
  type GoldenResult,
} from './case.ts'

const LOSS_TOLERANCE = 1e-3
const GRADIENT_TOLERANCE = 1e-4
/** relative to how far training moved: Adam amplifies the rounding of gradients near zero */
const FINAL_TOLERANCE = 2e-2

export async function runTrajectory(golden: GoldenCase, backend: GoldenBackend): Promise<GoldenResult> {
  return orUnsupported(async () => {
    const spec = readSpec(golden)
    const optimizer = readOptimizer(golden)
    const runner = await backend.createRunner(buildGraph(spec), tensorOf(golden, 'x.0').shape[0] ?? 1)
    const executor = graphExecutor(runner, backend.adapter)
    try {
      return judge(compare({ golden, backend }, spec, await train(golden, spec, optimizer, executor)))
    } finally {
      executor.destroy()
    }
  })
}

function readSpec({ description }: GoldenCase): ModelSpec {
  const { spec, loss, input_scale: inputScale = 1 } = description
  return parseModelSpec({ ...(spec as object), loss, inputScale })
}

/** PyTorch spells attributes in snake_case. */
function readOptimizer({ description }: GoldenCase): OptimizerSpec {
  const { weight_decay: weightDecay, note: _, ...rest } = description['optimizer'] as Record<string, unknown>
  return parseOptimizerSpec({ ...rest, ...(weightDecay === undefined ? {} : { weightDecay }) })
}

interface TrainedTrajectory {
  readonly losses: readonly number[]
  readonly firstGradient: Float32Array
  readonly final: Float32Array
}

async function train(
  golden: GoldenCase,
  spec: ModelSpec,
  optimizer: OptimizerSpec,
  executor: Executor,
): Promise<TrainedTrajectory> {
  const layout = parameterLayout(spec)
  const version = initialVersionState(spec, optimizer, 0)
  const { parameters } = version
  parameters.set(flatten(golden, spec, 'init'))
  const gradient = new Float32Array(layout.total)
  const steps = floatsOf(golden, 'losses').length
  const losses: number[] = []
  let firstGradient = new Float32Array()
  for (let step = 0; step < steps; step++) {
    executor.loadParameters(parameters)
    const sums = await executor.gradient(batchOf(golden, spec, step), gradient)
    losses.push(sums.lossSum / sums.targets)
    const { clip_norm: clipNorm } = golden.description
    meanOfStep({ layout }, gradient, {
      targets: sums.targets,
      mean: gradient,
      clipNorm: typeof clipNorm === 'number' ? clipNorm : undefined,
    })
    if (step === 0) firstGradient = gradient.slice(0, layout.trained)
    nextVersion({ layout, optimizer }, version, gradient, version)
  }
  return { losses, firstGradient, final: parameters.slice(0, layout.trained) }
}

function batchOf(golden: GoldenCase, spec: ModelSpec, step: number) {
  const x = valuesOf(golden, `x.${step}`, spec.inputScale)
  return { samples: tensorOf(golden, `x.${step}`).shape[0] ?? 0, x, y: valuesOf(golden, `y.${step}`) }
}

function compare(
  { golden, backend }: { readonly golden: GoldenCase; readonly backend: GoldenBackend },
  spec: ModelSpec,
  { losses, firstGradient, final }: TrainedTrajectory,
): Comparison[] {
  const wanted = floatsOf(golden, 'losses')
  const lossErrors = losses.map((loss, i) => relativeError([loss], [wanted[i] ?? NaN]))
  const init = flatten(golden, spec, 'init')
  const goal = flatten(golden, spec, 'final')
  const moved = (to: Float32Array) => to.map((value, i) => value - (init[i] ?? 0))
  return [
    { what: 'losses', error: Math.max(...lossErrors), tolerance: toleranceFor(backend, LOSS_TOLERANCE) },
    {
      what: 'grad0',
      error: relativeError(firstGradient, flatten(golden, spec, 'grad0')),
      tolerance: toleranceFor(backend, GRADIENT_TOLERANCE),
    },
    {
      what: 'final',
      error: relativeError(moved(final), moved(goal)),
      tolerance: toleranceFor(backend, FINAL_TOLERANCE, 'final'),
    },
  ]
}

function flatten(golden: GoldenCase, spec: ModelSpec, prefix: string): Float32Array<ArrayBuffer> {
  const { trained, entries } = parameterLayout(spec)
  const flat = new Float32Array(trained)
  for (const entry of entries)
    if (entry.kind !== 'statistic') flat.set(checked(floatsOf(golden, `${prefix}.${entry.name}`), entry), entry.offset)
  return flat
}

function checked(values: Float32Array, { name, length }: ParameterEntry): Float32Array {
  if (values.length !== length)
    throw new Error(`internal: \`${name}\` holds ${values.length} values, the model needs ${length}`)
  return values
}
