// A golden case of one operator: a model of that one layer, or of a loss alone. The same graph and runner as in
// training run it.

import { parseModelSpec, takesTokens, type Loss, type ModelSpec, type ParameterEntry } from '@starling-grid/model'
import { GridError } from '@starling-grid/protocol'
import { countTargets } from '../graph/batches.ts'
import { buildGraph, type Graph } from '../graph/build.ts'
import type { GraphPart } from '../graph/build.ts'
import { LOSSES } from '../graph/losses.ts'
import type { Tensor } from '../graph/tensor.ts'
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
import { inOurLayout, inputGradients } from './layouts.ts'

/** float32 agreement with float64: elementwise and pooling operators */
const EXACT_TOLERANCE = 1e-5
/** … and operators that sum */
const REDUCING_TOLERANCE = 1e-4
const REDUCING_OPS = new Set([
  'linear',
  'conv2d',
  'cross_entropy',
  'mse',
  'softmax',
  'layernorm',
  'rmsnorm',
  'groupnorm',
  'batchnorm2d',
  'attention',
  'embedding',
  'bce_with_logits',
])

/** The layer's name in its one-layer model. */
const LAYER_NAME = 'op'

export async function runOpCase(golden: GoldenCase, backend: GoldenBackend): Promise<GoldenResult> {
  const { op } = golden.description
  return orUnsupported(async () =>
    judge(isLoss(op) ? await runLoss(golden, op, backend) : await runLayer(inOurLayout(golden), backend)),
  )
}

function isLoss(op: unknown): op is Loss {
  return typeof op === 'string' && Object.hasOwn(LOSSES, op)
}

async function runLayer(golden: GoldenCase, backend: GoldenBackend): Promise<Comparison[]> {
  const spec = oneLayerModel(golden)
  const graph = buildGraph(spec, { outputGradient: 'given', inputGradient: !takesTokens(spec) })
  const ran = await runGraph(golden, graph, backend, {
    parts: ['forward', 'backward'],
    read: [graph.output, ...(graph.inputGradient ? [graph.inputGradient] : [])],
    write: [[graph.outputGradient, 'dy']],
  })
  const tolerance = toleranceFor(backend, toleranceOf(golden))
  return [
    { what: 'y', error: relativeError(ran.read[0] ?? [], floatsOf(golden, 'y')), tolerance },
    ...inputGradients(golden, ran.read[1] ?? new Float32Array()).map(({ what, ours, wanted }) => ({
      what,
      error: relativeError(ours, wanted),
      tolerance,
    })),
    ...learnedParameters(graph).map(({ name, offset, length }) => {
      const what = name.replace(LAYER_NAME, 'grad')
      return {
        what,
        error: relativeError(ran.gradient.subarray(offset, offset + length), floatsOf(golden, what)),
        tolerance,
      }
    }),
  ]
}

/** Attributes of cases that say in words what our layer always does. */
const IMPLIED: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  softmax: { axis: -1 },
  batchnorm2d: { training: true },
}
/** Layers of which the tensors tell more than that they have a name. */
const SIZED_BY_WEIGHT: readonly unknown[] = ['linear', 'conv2d']
const WITH_OPTIONAL_BIAS: readonly unknown[] = [...SIZED_BY_WEIGHT, 'layernorm']

/** The case's attributes are those of the layer; its sizes are read off the tensors. */
function oneLayerModel(golden: GoldenCase): ModelSpec {
  const { op, bias: _, ...attributes } = golden.description
  const implied = IMPLIED[String(op)] ?? {}
  const own = Object.entries(attributes).filter(([name, value]) => !(name in implied && implied[name] === value))
  const weight = golden.tensors.get('in.weight')
  const learned = {
    ...(weight ? { name: LAYER_NAME } : {}),
    ...(SIZED_BY_WEIGHT.includes(op) ? { out: weight?.shape[0] } : {}),
    ...(WITH_OPTIONAL_BIAS.includes(op) ? { bias: golden.tensors.has('in.bias') } : {}),
  }
  const input = golden.tensors.get('in.x')?.shape.slice(1)
  return parseModelSpec({ input: input ?? [1], layers: [{ type: op, ...Object.fromEntries(own), ...learned }] })
}

/** Statistics follow what is measured: a case of one forward and backward says nothing of them. */
function learnedParameters({ parameters }: Graph): readonly ParameterEntry[] {
  return parameters.filter(({ kind }) => kind !== 'statistic')
}

/** y is the mean loss, so both y and grad.x divide our sums by the number of targets. */
async function runLoss(golden: GoldenCase, loss: Loss, backend: GoldenBackend): Promise<Comparison[]> {
  const { op: _, reduction, ...options } = golden.description
  if (reduction !== 'mean')
    throw new GridError('unsupported', `expected a supported reduction of \`${loss}\`, got \`${String(reduction)}\``)
  const input = tensorOf(golden, 'in.x').shape.slice(1)
  const graph = buildGraph(
    { ...parseModelSpec({ input, layers: [{ type: 'relu' }], loss, ...options }), layers: [] },
    { inputGradient: true },
  )
  if (!graph.lossTensors) throw new Error('internal: a loss graph without a loss')
  const ran = await runGraph(golden, graph, backend, {
    parts: ['forward', 'loss', 'backward'],
    read: [graph.lossTensors.loss, inputGradientOf(graph)],
    write: [[graph.lossTensors.target, 'in.target']],
  })
  const targets = countTargets(graph, valuesOf(golden, 'in.target'))
  const [lossRows = new Float32Array(), dx = new Float32Array()] = ran.read
  const mean = lossRows.reduce((sum, value) => sum + value, 0) / targets
  const [dy = 1] = floatsOf(golden, 'dy')
  const tolerance = toleranceFor(backend, toleranceOf(golden))
  return [
    { what: 'y', error: relativeError([mean], floatsOf(golden, 'y')), tolerance },
    {
      what: 'grad.x',
      error: relativeError(
        dx.map((value) => (value * dy) / targets),
        floatsOf(golden, 'grad.x'),
      ),
      tolerance,
    },
  ]
}

interface GraphRun {
  readonly parts: readonly GraphPart[]
  readonly read: readonly Tensor[]
  /** tensors besides the input, with the name of what the file holds for them */
  readonly write: readonly (readonly [Tensor, string])[]
}

async function runGraph(golden: GoldenCase, graph: Graph, backend: GoldenBackend, { parts, read, write }: GraphRun) {
  const samples = tensorOf(golden, 'in.x').shape[0] ?? 0
  const runner = await backend.createRunner(graph, samples)
  try {
    runner.loadParameters(flatParameters(golden, graph))
    const values = [[graph.input, 'in.x'] as const, ...write].map(
      ([tensor, name]) => [tensor, valuesOf(golden, name)] as const,
    )
    const gradient = new Float32Array(graph.parameterCount)
    return {
      gradient,
      read: await runner.run({ samples, parts, read, write: values, clearGradient: true, gradientInto: gradient }),
    }
  } finally {
    runner.destroy()
  }
}

function flatParameters(golden: GoldenCase, graph: Graph): Float32Array {
  const flat = new Float32Array(graph.parameterCount)
  for (const { name, offset } of learnedParameters(graph))
    flat.set(floatsOf(golden, name.replace(LAYER_NAME, 'in')), offset)
  return flat
}

function inputGradientOf({ inputGradient }: Graph): Tensor {
  if (!inputGradient) throw new Error('internal: the graph has no input gradient')
  return inputGradient
}

function toleranceOf({ description }: GoldenCase): number {
  return REDUCING_OPS.has(String(description['op'])) ? REDUCING_TOLERANCE : EXACT_TOLERANCE
}
