// A published language model tuned with adapters: what one member sends in a step (counted), and how long forward and
// backward take (timed). The model has the shape of SmolLM2-135M and random weights: arithmetic does not see which.
import { readFile } from 'node:fs/promises'
import { openGpu } from '@starling-grid/client-node'
import { fixedEntries, type ModelSpec, parameterCount, parseModelSpec } from '@starling-grid/model'
import { createGpuExecutor } from '@starling-grid/volunteer'
import { type FrozenSource } from '@starling-grid/volunteer/language'
import { noise, SMOLLM2_135M } from '@starling-grid/volunteer/testing'
import { type BenchRow, race, rounded } from './row.ts'
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
  return rows
}

const BYTES_ROW = 'language bytes of a step, SmolLM2-135M LoRA r8 in int8'
const STEP_ROW = 'language step, SmolLM2-135M LoRA r8, 1 × 256 tokens'

/** Of two members, each sends the sums once around. */
function bytesRow(spec: ModelSpec): BenchRow {
  const ours = rounded((parameterCount(spec) * INT8_BYTES) / MEGABYTE)
  return {
    name: BYTES_ROW,
    adapter: 'none',
    unit: 'MB',
    better: 'less',
    ours,
    min: ours,
    max: ours,
    peers: { 'wanted at most': MOST_MEGABYTES },
    ratio: { 'wanted at most': rounded(MOST_MEGABYTES / ours) },
    reach: { peer: 'wanted at most', ratio: 1 },
  }
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
