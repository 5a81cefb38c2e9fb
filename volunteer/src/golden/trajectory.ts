// A golden training run: the same batches, the same optimizer, every loss and the final parameters compared.

import {
  fromPublished,
  initialVersionState,
  nextVersion,
  parameterLayout,
  parseModelSpec,
  parseOptimizerSpec,
  type ModelSpec,
} from '@starling-grid/model'
import { clipGlobalNorm, meanGradient, type OptimizerSpec } from '@starling-grid/shaders'
import { buildGraph } from '../graph/build.ts'
import type { Batch, Executor } from '../graph/executor.ts'
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

/** A case, and how its batches are called. */
export interface Trajectory {
  readonly golden: GoldenCase
  readonly spec: ModelSpec
  /** whether the case has the first gradient as it was before it was clipped */
  readonly gradientUnclipped: boolean
  batch(step: number): Batch
}

export async function runTrajectory(golden: GoldenCase, backend: GoldenBackend): Promise<GoldenResult> {
  return orUnsupported(async () => {
    const spec = readSpec(golden)
    const trajectory = { golden, spec, gradientUnclipped: false, batch: (step: number) => batchOf(golden, spec, step) }
    const runner = await backend.createRunner(buildGraph(spec), tensorOf(golden, 'x.0').shape[0] ?? 1)
    const executor = graphExecutor(runner, backend.adapter)
    try {
      return judge(compareTraining(trajectory, await train(trajectory, executor), backend))
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

export interface TrainedTrajectory {
  readonly losses: readonly number[]
  readonly firstGradient: Float32Array
  readonly final: Float32Array
}

export async function train(
  { golden, spec, gradientUnclipped, batch }: Trajectory,
  executor: Executor,
): Promise<TrainedTrajectory> {
  const layout = parameterLayout(spec)
  const optimizer = readOptimizer(golden)
  const version = initialVersionState(spec, optimizer, 0)
  const { parameters } = version
  parameters.set(flatten(golden, spec, 'init'))
  const gradient = new Float32Array(layout.total)
  const steps = floatsOf(golden, 'losses').length
  const losses: number[] = []
  let firstGradient = new Float32Array()
  for (let step = 0; step < steps; step++) {
    executor.loadParameters(parameters)
    const sums = await executor.gradient(batch(step), gradient)
    losses.push(sums.lossSum / sums.targets)
    const { clip_norm: clipNorm } = golden.description
    const clip = typeof clipNorm === 'number' ? clipNorm : undefined
    meanGradient(gradient, sums.targets, gradient)
    if (step === 0 && gradientUnclipped) firstGradient = gradient.slice(0, layout.trained)
    if (clip !== undefined) clipGlobalNorm(gradient.subarray(0, layout.trained), clip)
    if (step === 0 && !gradientUnclipped) firstGradient = gradient.slice(0, layout.trained)
    nextVersion({ layout, optimizer }, version, gradient, version)
  }
  return { losses, firstGradient, final: parameters.slice() }
}

function batchOf(golden: GoldenCase, spec: ModelSpec, step: number): Batch {
  const x = valuesOf(golden, `x.${step}`, spec.inputScale)
  return { samples: tensorOf(golden, `x.${step}`).shape[0] ?? 0, x, y: valuesOf(golden, `y.${step}`) }
}

export function compareTraining(
  { golden, spec }: Trajectory,
  { losses, firstGradient, final }: TrainedTrajectory,
  backend: GoldenBackend,
): Comparison[] {
  const wanted = floatsOf(golden, 'losses')
  const lossErrors = losses.map((loss, i) => relativeError([loss], [wanted[i] ?? NaN]))
  const init = flatten(golden, spec, 'init')
  const goal = flatten(golden, spec, 'final')
  const moved = (to: Float32Array) => goal.map((_, i) => (to[i] ?? NaN) - (init[i] ?? 0))
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

/** (trained,) in the order of the layout. */
export function flatten(golden: GoldenCase, spec: ModelSpec, prefix: string): Float32Array<ArrayBuffer> {
  const { trained, entries } = parameterLayout(spec)
  const flat = new Float32Array(trained)
  for (const entry of entries)
    if (entry.kind !== 'statistic') flat.set(published(golden, `${prefix}.${entry.name}`, entry), entry.offset)
  return flat
}

/** A tensor of the case in our order. */
export function published(
  golden: GoldenCase,
  name: string,
  entry: Parameters<typeof fromPublished>[0] & { readonly length: number },
): Float32Array {
  const values = floatsOf(golden, name)
  if (values.length !== entry.length)
    throw new Error(`internal: \`${name}\` holds ${values.length} values, the model needs ${entry.length}`)
  return fromPublished(entry, values)
}
