// A golden run of a published language model: logits at the beginning, then training, of the whole or of adapters
// alone, then a greedy continuation of a prompt. Tensors have the names of Hugging Face's and PEFT's files.

import { fixedEntries, parseModelSpec, type ModelSpec } from '@starling-grid/model'
import { GridError, int32Values } from '@starling-grid/protocol'
import { buildGraph } from '../graph/build.ts'
import { buildDecoder } from '../graph/decoder-graph.ts'
import type { Executor } from '../graph/executor.ts'
import { loadFrozen } from '../graph/fixed.ts'
import type { FrozenSource } from '../graph/frozen-source.ts'
import { graphExecutor } from '../graph/graph-executor.ts'
import { PROMPT_TOKENS, TokenDecoder } from '../graph/token-decoder.ts'
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
import { compareTraining, flatten, published, train, type Trajectory } from './trajectory.ts'

const LOGITS_TOLERANCE = 1e-4

export async function runLanguageCase(golden: GoldenCase, backend: GoldenBackend): Promise<GoldenResult> {
  return orUnsupported(async () => {
    const trajectory = trajectoryOf(golden)
    const { spec } = trajectory
    const runner = await backend.createRunner(buildGraph(spec), tensorOf(golden, 'ids.0').shape[0] ?? 1)
    const executor = graphExecutor(runner, backend.adapter)
    try {
      await loadFrozen(runner, frozenOf(golden, spec))
      const logits = await compareLogits(trajectory, executor, backend)
      const trained = await train(trajectory, executor)
      const greedy = await compareGreedy(trajectory, trained.final, backend)
      return judge([logits, ...compareTraining(trajectory, trained, backend), greedy])
    } finally {
      executor.destroy()
    }
  })
}

function trajectoryOf(golden: GoldenCase): Trajectory {
  const spec = readSpec(golden)
  return {
    golden,
    spec,
    gradientUnclipped: true,
    batch: (step) => ({
      samples: tensorOf(golden, `ids.${step}`).shape[0] ?? 0,
      x: valuesOf(golden, `ids.${step}`),
      y: valuesOf(golden, `labels.${step}`),
    }),
  }
}

function readSpec(golden: GoldenCase): ModelSpec {
  const { config, lora, loss, ignore_index } = golden.description
  const adapters = lora === null || lora === undefined ? {} : { lora: readAdapters(lora as Record<string, unknown>) }
  const input = tensorOf(golden, 'ids.0').shape.slice(1)
  return parseModelSpec({ input, layers: [{ type: 'causal_lm', config, ...adapters }], loss, ignore_index })
}

/** PEFT's names. */
function readAdapters({ r: rank, lora_alpha: alpha, target_modules: targets, ...rest }: Record<string, unknown>) {
  const [unknown] = Object.keys(rest)
  if (unknown !== undefined)
    throw new GridError('unsupported', `expected r, lora_alpha and target_modules, got ${unknown}`)
  return { rank, alpha, targets }
}

function frozenOf(golden: GoldenCase, spec: ModelSpec): FrozenSource {
  const entries = new Map(fixedEntries(spec).map((entry) => [entry.name, entry]))
  return {
    async read(name) {
      const entry = entries.get(name)
      if (!entry) throw new Error(`internal: no frozen ${name}`)
      return published(golden, `base.${name}`, entry)
    },
  }
}

async function compareLogits(
  { golden, spec, batch }: Trajectory,
  executor: Executor,
  backend: GoldenBackend,
): Promise<Comparison> {
  const { x, samples } = batch(0)
  executor.loadParameters(flatten(golden, spec, 'init'))
  const ours = await executor.predict(x, samples)
  return {
    what: 'logits',
    error: relativeError(ours, floatsOf(golden, 'logits')),
    tolerance: toleranceFor(backend, LOGITS_TOLERANCE),
  }
}

/** The share of tokens that differ; none may. The continuation is written with kept keys and values. */
async function compareGreedy(
  { golden, spec }: Trajectory,
  final: Float32Array,
  backend: GoldenBackend,
): Promise<Comparison> {
  const wanted = int32Values(tensorOf(golden, 'greedy.tokens'))
  const tokens = [...int32Values(tensorOf(golden, 'greedy.prompt'))]
  const prompt = tokens.length
  const graph = buildDecoder(spec, prompt + wanted.length)
  const runner = await backend.createRunner(graph, PROMPT_TOKENS)
  const decoder = new TokenDecoder(graph, runner)
  try {
    await loadFrozen(runner, frozenOf(golden, spec))
    decoder.loadParameters(final)
    for (const _ of wanted) tokens.push(largest(await decoder.logitsAfter(tokens)))
  } finally {
    decoder.destroy()
  }
  const wrong = wanted.reduce((sum, token, i) => sum + (token === tokens[prompt + i] ? 0 : 1), 0)
  return { what: 'greedy', error: wrong / wanted.length, tolerance: 0 }
}

function largest(logits: Float32Array): number {
  return logits.indexOf(logits.reduce((most, value) => Math.max(most, value), -Infinity))
}
