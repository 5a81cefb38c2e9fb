// `explain MODEL`: how a model would run on this machine's adapter, kernel by kernel. Nothing is trained.
import { readFile } from 'node:fs/promises'
import { adapterLabel, openGpu, wasmThreads } from '@starling-grid/client-node'
import { gpt, lenet5, mlp, parseModelSpec, resnet, type ModelSpec } from '@starling-grid/model'
import { type AdapterDescription, GridError } from '@starling-grid/protocol'
import { buildGraph, explainPlan, planGraph, traitsOf, tuneOn, type Explanation } from '@starling-grid/volunteer'
import { planWasm, wasmAdapter } from '@starling-grid/volunteer/wasm'
import { Command, InvalidArgumentError, Option } from 'commander'

const MODELS: Readonly<Record<string, () => ModelSpec>> = {
  lenet5,
  mlp: () => mlp({ input: [1, 28, 28], hidden: [512, 512], classes: 10, inputScale: 1 / 255 }),
  resnet20: resnet,
  gpt: () => gpt({ blocks: 2, heads: 4, channels: 128, context: 64, vocab: 65 }),
}
const DEFAULT_BATCH = 64
const MEBIBYTE = 2 ** 20

interface ExplainOptions {
  readonly batch: number
  readonly executor: 'webgpu' | 'wasm'
  readonly adapter?: string
  readonly as?: 'gpu'
  readonly tune?: number
  readonly recompute?: true
  readonly precision: 'f32' | 'f16'
  readonly json?: true
}

export async function explain(argv: string[]): Promise<number> {
  const program = new Command('starling explain')
    .description(
      'Shows the plan of one training step: kernels, variants and why, dispatches, bytes, operations, ' +
        'predicted cost, memory.',
    )
    .argument('<model>', `${Object.keys(MODELS).join(', ')}, or a JSON file with a model`)
    .option('--batch <n>', 'samples of one step', wholeNumber, DEFAULT_BATCH)
    .addOption(new Option('--executor <kind>', 'what would compute').choices(['webgpu', 'wasm']).default('webgpu'))
    .option('--adapter <text>', "part of the wanted adapter's name")
    .addOption(new Option('--as <kind>', 'plan for a software adapter as for a GPU').choices(['gpu']))
    .addOption(
      new Option('--precision <kind>', 'how values between kernels are stored').choices(['f32', 'f16']).default('f32'),
    )
    .option('--recompute', 'compute values again in backward instead of keeping them, also where memory suffices')
    .option('--tune <ms>', 'measure variants first, for so long in all', wholeNumber)
    .option('--json', 'print one JSON value on the last line of stdout')
    .exitOverride()
    .parse(argv, { from: 'user' })
  const options = program.opts<ExplainOptions>()
  const spec = await modelNamed(program.args[0] ?? '')
  const { adapter, explanation } = await (options.executor === 'wasm' ? onWasm(spec, options) : onGpu(spec, options))
  const { batch, json } = options
  if (json) console.log(JSON.stringify({ model: spec.name, adapter: adapter.name, batch, ...explanation }))
  else print(spec.name, adapterLabel(adapter), { batch, explanation })
  return 0
}

interface Explained {
  readonly adapter: AdapterDescription
  readonly explanation: Explanation
}

async function onWasm(spec: ModelSpec, { batch, recompute, precision, tune }: ExplainOptions): Promise<Explained> {
  if (precision === 'f16' || tune !== undefined)
    throw new GridError('usage', 'expected neither --precision f16 nor --tune with --executor wasm; leave them out')
  const plan = planWasm(buildGraph(spec), { maxMicroBatch: batch, ...(recompute ? { recompute } : {}) })
  return {
    adapter: wasmAdapter(wasmThreads(undefined)),
    explanation: explainPlan(plan, { samples: plan.capacity, traits: { software: true } }),
  }
}

async function onGpu(
  spec: ModelSpec,
  { batch, adapter, as, tune, precision, recompute }: ExplainOptions,
): Promise<Explained> {
  const gpu = await openGpu({ adapter })
  try {
    const software = gpu.description.software && as !== 'gpu'
    const traits = traitsOf(gpu.device, software, gpu.facts)
    const graph = buildGraph(spec)
    const runner = {
      device: gpu.device,
      graph,
      readText: (url: URL) => readFile(url, 'utf8'),
      maxMicroBatch: batch,
      precision,
      software,
      facts: gpu.facts,
    }
    const choose = tune === undefined ? undefined : await tuneOn({ budgetMs: tune }, gpu.description, runner)
    const plan = planGraph(graph, {
      traits,
      limits: gpu.device.limits,
      maxMicroBatch: batch,
      precision,
      ...(recompute ? { recompute } : {}),
      ...(choose ? { choose } : {}),
    })
    const explanation = explainPlan(plan, { samples: plan.capacity, traits })
    return { adapter: gpu.description, explanation }
  } finally {
    gpu.close()
  }
}

async function modelNamed(name: string): Promise<ModelSpec> {
  const zoo = Object.hasOwn(MODELS, name) ? MODELS[name] : undefined
  if (zoo) return zoo()
  const text = await readFile(name, 'utf8').catch(() => {
    throw new GridError(
      'usage',
      `expected one of ${Object.keys(MODELS).join(', ')} or a model file, got "${name}"; name a file that can be read`,
    )
  })
  return parseModelSpec(parsed(text, name))
}

function parsed(text: string, name: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new GridError(
      'model-invalid',
      `expected JSON in "${name}", got: ${cause instanceof Error ? cause.message : String(cause)}`,
    )
  }
}

function print(
  model: string,
  adapter: string,
  { batch, explanation }: { readonly batch: number; readonly explanation: Explanation },
): void {
  const { samples, recomputed, calls, totals } = explanation
  const memory = recomputed ? ', with values computed again in backward' : ''
  console.log(
    `${model} on ${adapter}: a step of ${batch} samples runs as ${Math.ceil(batch / samples)} × ${samples}${memory}`,
  )
  const rows = [
    ['part', 'kernel', 'variant', 'why', 'workgroups', 'loads', 'useful', 'MiB', 'Mflop', 'ms'],
    ...calls.map(rowOf),
  ]
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  for (const row of rows)
    console.log(
      row
        .map((cell, i) => (i < 6 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0)))
        .join('  ')
        .trimEnd(),
    )
  console.log(
    `${totals.dispatches} dispatches, ${mega(totals.flops)} Mflop, ${mebi(totals.bytes)} MiB bound, ` +
      `${percent(totals.useful)} of the arithmetic of products makes results, ` +
      `about ${totals.predictedMs.toPrecision(3)} ms (predicted)`,
  )
  console.log(
    `activations ${mebi(totals.activationBytes)} MiB, at least ${mebi(totals.peakLiveBytes)} MiB live at one time ` +
      `(${mebi(totals.leastTensorBytes)} MiB without scratch): ratio ${totals.ratio.toFixed(3)}; ` +
      `parameters and gradient ${mebi(totals.parameterBytes)} MiB`,
  )
}

function rowOf({
  part,
  kernel,
  epilogue,
  variant,
  why,
  workgroups,
  serialLoads,
  bytes,
  flops,
  useful,
  predictedMs,
}: Explanation['calls'][number]): string[] {
  return [
    part,
    [kernel, ...epilogue].join(' + '),
    variant,
    why,
    workgroups.join('+'),
    serialLoads.map((loads) => Math.ceil(loads)).join('+'),
    percent(useful),
    mebi(bytes),
    mega(flops),
    predictedMs.toFixed(3),
  ]
}

function percent(share: number): string {
  return `${(100 * share).toFixed(0)} %`
}

function mebi(bytes: number): string {
  return (bytes / MEBIBYTE).toFixed(2)
}

function mega(flops: number): string {
  return (flops / 1e6).toFixed(2)
}

function wholeNumber(text: string): number {
  const value = Number(text)
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError('expected a whole number above 0')
  return value
}
