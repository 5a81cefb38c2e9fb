// Which of two executors computes where the only adapter is a software one: the one that takes less time for a small
// model here. What was measured is kept, so that later starts need not measure.
import { type ModelSpec, parameterCount, parseModelSpec } from '@starling-grid/model'
import { type Clock, sha256Of } from '@starling-grid/protocol'
import type { Batch, Executor } from '../graph/executor.ts'
import type { ShardCache } from '../host.ts'

/** Few kernels, which software adapters compile in a second, and enough work to tell the two apart. */
const SMALL = {
  name: 'small',
  input: [256],
  layers: [{ type: 'linear', name: 'a', out: 256 }, { type: 'relu' }, { type: 'linear', name: 'b', out: 10 }],
}
const SAMPLES = 32
const TRIALS = 5

export interface ExecutorTimes {
  /** ms of a training step of the small model */
  readonly webgpu: number
  readonly wasm: number
}

export interface FasterOptions {
  /** what the measurement depends on: names of the adapter and of the engine, threads */
  readonly place: string
  readonly cache: ShardCache
  readonly clock: Clock
  open(executor: keyof ExecutorTimes, spec: ModelSpec): Promise<Executor>
}

/** Of a place that was measured before; undefined: of none. */
export async function knownMeasure({
  place,
  cache,
}: Pick<FasterOptions, 'place' | 'cache'>): Promise<ExecutorTimes | undefined> {
  const bytes = await cache.get(await nameOf(place)).catch(() => undefined)
  return bytes && parse(bytes)
}

/** Measures, and keeps the result. */
export async function measureExecutors(options: FasterOptions): Promise<ExecutorTimes> {
  const measured = { wasm: await timeOf(options, 'wasm'), webgpu: await timeOf(options, 'webgpu') }
  const bytes = new TextEncoder().encode(JSON.stringify(measured))
  // a cache that cannot be written costs the next start a second
  await options.cache.put(await nameOf(options.place), bytes).catch(() => undefined)
  return measured
}

/** For people: what computes, and why. */
export function measuredText(adapter: string, { webgpu, wasm }: ExecutorTimes): string {
  const [first, second] = wasm <= webgpu ? ['WebAssembly', 'WebGPU'] : ['WebGPU', 'WebAssembly']
  const [less, more] = [Math.min(webgpu, wasm), Math.max(webgpu, wasm)].map((ms) => ms.toFixed(1))
  return (
    `No GPU: ${adapter} computes on the processor. There ${first} is faster ` +
    `(measured: ${less} ms a step, ${second} ${more} ms), so it is used.`
  )
}

function nameOf(place: string): ReturnType<typeof sha256Of> {
  return sha256Of(new TextEncoder().encode(`which executor computes faster: ${place}`))
}

/** Whatever is odd about what was kept makes it worthless. */
function parse(bytes: Uint8Array): ExecutorTimes | undefined {
  try {
    const value = JSON.parse(new TextDecoder().decode(bytes)) as Partial<ExecutorTimes> | null
    const { webgpu, wasm } = value ?? {}
    return isTime(webgpu) && isTime(wasm) ? { webgpu, wasm } : undefined
  } catch {
    return undefined
  }
}

function isTime(ms: unknown): ms is number {
  return typeof ms === 'number' && Number.isFinite(ms) && ms >= 0
}

/** The fastest of some steps, after one that compiles. */
async function timeOf({ open, clock }: FasterOptions, executor: keyof ExecutorTimes): Promise<number> {
  const spec = parseModelSpec(SMALL)
  const opened = await open(executor, spec)
  try {
    const gradient = new Float32Array(parameterCount(spec))
    const batch: Batch = { samples: SAMPLES, x: new Float32Array(SAMPLES * 256).fill(0.1), y: new Int32Array(SAMPLES) }
    opened.loadParameters(gradient)
    const times: number[] = []
    for (let trial = 0; trial <= TRIALS; trial++) {
      const start = clock.now()
      await opened.gradient(batch, gradient)
      if (trial > 0) times.push(clock.now() - start)
    }
    return Math.min(...times)
  } finally {
    opened.destroy()
  }
}
