// Samples per second of a training step (forward, backward, gradient read back), on WebGPU and in plain TypeScript.
import { readFile } from 'node:fs/promises'
import { openGpu } from '@starling-grid/client-node'
import { initialParameters, lenet5, mlp, type ModelSpec, parameterCount } from '@starling-grid/model'
import { random32 } from '@starling-grid/protocol'
import { type Batch, createGpuExecutor, createReferenceExecutor, type Executor } from '@starling-grid/volunteer'
import { type BenchRow, race } from './row.ts'

const SAMPLES = 64
const ROUNDS = 5
/** steps that one round times, so that a read-back's latency does not decide */
const STEPS = 8
/** ‖ours − reference‖ ÷ ‖reference‖ of the gradient; more is a wrong kernel, not a fast one */
const TOLERANCE = 1e-4

export async function stepSuite(adapter: string | undefined): Promise<BenchRow[]> {
  const rows: BenchRow[] = []
  for (const spec of [lenet5(), mlp({ input: [1, 28, 28], hidden: [512, 512], classes: 10 })]) rows.push(await stepRow(spec, adapter))
  return rows
}

async function stepRow(spec: ModelSpec, wanted: string | undefined): Promise<BenchRow> {
  const gpu = await openGpu({ adapter: wanted })
  const reference = createReferenceExecutor(spec)
  try {
    const ours = await createGpuExecutor({ device: gpu.device, adapter: gpu.description, spec, readText: (url) => readFile(url, 'utf8') })
    const batch = randomBatch(spec)
    for (const executor of [ours, reference]) executor.loadParameters(initialParameters(spec, 1))
    await requireAgreement(spec, { ours, reference, batch })
    const row = { name: `step ${spec.name} b${SAMPLES}`, adapter: gpu.description.name, unit: 'samples/s' }
    return await race(row, contender(ours, { spec, batch, steps: STEPS }), { reference: contender(reference, { spec, batch, steps: 1 }) }, ROUNDS)
  } finally {
    gpu.close()
  }
}

function contender(executor: Executor, { spec, batch, steps }: { readonly spec: ModelSpec; readonly batch: Batch; readonly steps: number }): () => Promise<number> {
  const gradient = new Float32Array(parameterCount(spec))
  return async () => {
    const start = performance.now()
    for (let i = 0; i < steps; i++) await executor.gradient(batch, gradient)
    return (1000 * steps * batch.samples) / (performance.now() - start)
  }
}

async function requireAgreement(spec: ModelSpec, { ours, reference, batch }: { readonly ours: Executor; readonly reference: Executor; readonly batch: Batch }): Promise<void> {
  const count = parameterCount(spec)
  const [a, b] = [new Float32Array(count), new Float32Array(count)]
  await ours.gradient(batch, a)
  await reference.gradient(batch, b)
  let difference = 0
  let norm = 0
  for (let i = 0; i < count; i++) {
    difference += ((a[i] ?? 0) - (b[i] ?? 0)) ** 2
    norm += (b[i] ?? 0) ** 2
  }
  const error = Math.sqrt(difference / norm)
  if (!(error < TOLERANCE)) throw new Error(`the gradient of ${spec.name} is off by ${error}: nothing to time`)
}

function randomBatch(spec: ModelSpec): Batch {
  const random = random32(1)
  const elements = spec.input.reduce((product, size) => product * size, SAMPLES)
  return { samples: SAMPLES, x: Float32Array.from({ length: elements }, () => random() / 2 ** 32), y: Int32Array.from({ length: SAMPLES }, () => random() % 10) }
}
