// A published language model tuned with adapters: what one member sends in a step and what a device holds (counted),
// and how long forward and backward take (timed), also beside matrices that stay packed. Models have the shape of
// SmolLM2-135M, or a small one, and random weights: arithmetic does not see which.
import { readFile } from 'node:fs/promises'
import { openGpu, wasmThreads } from '@starling-grid/client-node'
import { fixedEntries, type ModelSpec, parameterCount, parseModelSpec } from '@starling-grid/model'
import { PLAIN_TRAITS, type PackedStorage } from '@starling-grid/shaders'
import { buildGraph, createGpuExecutor, type Executor, planGraph } from '@starling-grid/volunteer'
import { type FrozenSource } from '@starling-grid/volunteer/language'
import { noise, planBytes, SMOLLM2_135M, storedSource } from '@starling-grid/volunteer/testing'
import { createWasmExecutor } from '@starling-grid/volunteer/wasm'
import { type BenchRow, compared, race } from './row.ts'
import { isWanted, type SuiteOptions } from './suite.ts'

const CONTEXT = 256
const RANK = 8
/** What a home line should carry in a step. */
const MOST_MEGABYTES = 2.6
const MEGABYTE = 1e6
/** Eight bits a number, and a scale of four bytes for each 256 (docs/STEPS.md). */
const INT8_BYTES = 1 + 4 / 256

/** The shape of SmolLM2-135M with adapters on all linear layers. */
export function smallLanguageModel(): ModelSpec {
  return parseModelSpec({
    name: 'smollm2_135m',
    input: [CONTEXT],
    layers: [
      {
        type: 'causal_lm',
        config: SMOLLM2_135M,
        lora: { rank: RANK, alpha: 2 * RANK },
      },
    ],
    ignore_index: -100,
  })
}

export async function languageSuite(options: SuiteOptions): Promise<BenchRow[]> {
  const spec = smallLanguageModel()
  const rows: BenchRow[] = []
  if (isWanted(options, BYTES_ROW)) rows.push(bytesRow(spec))
  if (isWanted(options, STEP_ROW)) rows.push(await stepRow(spec, options))
  for (const storage of PACKED) {
    const [memory, step] = [`${MEMORY_ROW} ${storage}`, `${PACKED_ROW} ${storage}`]
    if (isWanted(options, memory)) rows.push(memoryRow(memory, spec, storage))
    if (isWanted(options, step)) rows.push(await packedRow(step, storage, options))
  }
  return rows
}

const BYTES_ROW = 'language bytes of a step, SmolLM2-135M LoRA r8 in int8'
const MEMORY_ROW = 'language memory of a device, SmolLM2-135M LoRA r8, 1 × 256 tokens, base in'
const PACKED_ROW = 'language step, llama of 5 M LoRA r8, 2 × 128 tokens, base packed in'
const PACKED: readonly PackedStorage[] = ['f16', 'int8', 'int4']
const STEP_ROW = 'language step, SmolLM2-135M LoRA r8, 1 × 256 tokens'

/** Of two members, each sends the sums once around. */
function bytesRow(spec: ModelSpec): BenchRow {
  const row = { name: BYTES_ROW, adapter: 'none', unit: 'MB', better: 'less' } as const
  const aim = 'wanted at most'
  return compared({ ...row, reach: { peer: aim, ratio: 1 } }, [(parameterCount(spec) * INT8_BYTES) / MEGABYTE], {
    [aim]: [MOST_MEGABYTES],
  })
}

async function stepRow(spec: ModelSpec, { adapter, rounds, log }: SuiteOptions): Promise<BenchRow> {
  const gpu = await openGpu({ adapter })
  try {
    log(`${STEP_ROW} on ${gpu.description.name}`)
    const executor = await createGpuExecutor({
      device: gpu.device,
      adapter: gpu.description,
      spec,
      readText: (url) => readFile(url, 'utf8'),
      maxMicroBatch: 1,
      frozen: randomWeights(spec),
    })
    try {
      executor.loadParameters(noise(parameterCount(spec), 1).map((value) => 0.02 * value))
      const ids = Int32Array.from({ length: CONTEXT + 1 }, (_, i) => (7919 * i) % SMOLLM2_135M.vocab_size)
      const batch = { samples: 1, x: ids.slice(0, CONTEXT), y: ids.slice(1) }
      const gradient = new Float32Array(parameterCount(spec))
      const step = async (): Promise<number> => {
        const start = performance.now()
        await executor.gradient(batch, gradient)
        return CONTEXT / ((performance.now() - start) / 1000)
      }
      const head = { name: STEP_ROW, adapter: gpu.description.name, unit: 'tokens/s' }
      return {
        ...(await race(head, step, {}, rounds)),
        missing: { PyTorch: 'compared by hand: the same shape in PyTorch on the same cores' },
      }
    } finally {
      executor.destroy()
    }
  } finally {
    gpu.close()
  }
}

/** WebGPU's, which every adapter has. */
const DEFAULT_LIMITS = {
  maxStorageBufferBindingSize: 128 * 1024 * 1024,
  maxBufferSize: 256 * 1024 * 1024,
  maxStorageBuffersPerShaderStage: 8,
}

/** All buffers of a plan whose matrices are packed and whose tables are read in pieces, beside one of f32. */
function memoryRow(name: string, spec: ModelSpec, storage: PackedStorage): BenchRow {
  const graph = buildGraph(spec)
  const options = { traits: PLAIN_TRAITS, limits: DEFAULT_LIMITS, maxMicroBatch: 1 }
  const bytes = (pieces: boolean): number =>
    planBytes(planGraph(graph, { ...options, ...(pieces ? { packing: { storage, pieces } } : {}) }))
  const row = { name, adapter: 'none', unit: 'MB', better: 'less' } as const
  return compared(row, [bytes(true) / MEGABYTE], { f32: [bytes(false) / MEGABYTE] })
}

const SMALL_CONTEXT = 128
const SMALL_SAMPLES = 2
const SMALL = {
  model_type: 'llama',
  vocab_size: 4096,
  hidden_size: 256,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  intermediate_size: 768,
  tie_word_embeddings: true,
}

/** Packed against f32, in turns, on WebAssembly. */
async function packedRow(name: string, storage: PackedStorage, { rounds }: SuiteOptions): Promise<BenchRow> {
  const spec = parseModelSpec({
    name: 'small_llama',
    input: [SMALL_CONTEXT],
    layers: [{ type: 'causal_lm', config: SMALL, lora: { rank: RANK, alpha: 2 * RANK } }],
  })
  const frozen = storedSource(spec, storage, (of, length) =>
    noise(length, length % 97).map((value) => (of.includes('norm') ? 1 : 0.02) * value),
  )
  const open = (pack: boolean) => createWasmExecutor(spec, { threads: wasmThreads(undefined), frozen, pack })
  const [packed, plain] = [await open(true), await open(false)]
  try {
    const stepOn = (executor: Executor): (() => Promise<number>) => smallStep(spec, executor)
    const head = { name, adapter: packed.adapter.name, unit: 'tokens/s' }
    return await race(head, stepOn(packed), { f32: stepOn(plain) }, rounds)
  } finally {
    packed.destroy()
    plain.destroy()
  }
}

/** Tokens a second of one gradient. */
function smallStep(spec: ModelSpec, executor: Executor): () => Promise<number> {
  executor.loadParameters(noise(parameterCount(spec), 1).map((value) => 0.02 * value))
  const tokens = SMALL_SAMPLES * SMALL_CONTEXT
  const ids = Int32Array.from({ length: tokens + 1 }, (_, i) => (7919 * i) % SMALL.vocab_size)
  const batch = { samples: SMALL_SAMPLES, x: ids.slice(0, tokens), y: ids.slice(1) }
  const gradient = new Float32Array(parameterCount(spec))
  return async () => {
    const start = performance.now()
    await executor.gradient(batch, gradient)
    return tokens / ((performance.now() - start) / 1000)
  }
}

/** One at a time: all together have half a gigabyte. */
function randomWeights(spec: ModelSpec): FrozenSource {
  const lengths = new Map(frozenLengths(spec))
  return {
    async read(name) {
      const length = lengths.get(name) ?? 0
      const scale = name.includes('norm') ? 1 : 0.02
      return noise(length, length % 97).map((value) => scale * value)
    },
  }
}

function frozenLengths(spec: ModelSpec): (readonly [string, number])[] {
  return fixedEntries(spec).map(({ name, length }) => [name, length] as const)
}
