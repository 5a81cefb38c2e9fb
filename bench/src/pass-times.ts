// How long each kernel keeps a device busy: every dispatch gets a compute pass of its own between two timestamps. Works
// on WebGPU's interfaces, so what is measured need not know.

/** All dispatches of one kernel with one grid. */
export interface PassTime {
  /** `file.entryPoint x×y` */
  readonly kernel: string
  readonly ms: number
  readonly dispatches: number
}

/** Of one query set; WebGPU allows no more. */
const MOST_QUERIES = 4096
const QUERY_BYTES = 8
const NS_PER_MS = 1e6

interface Timed {
  readonly kernel: string
  readonly set: GPUQuerySet
  /** of the first of its two timestamps */
  readonly index: number
}

/**
 * Watches the computing passes of a device with `timestamp-query` until `end` is called.
 * @throws Error when the device cannot tell times
 */
export function watchPasses(device: GPUDevice): { end(): Promise<PassTime[]> } {
  if (!device.features.has('timestamp-query'))
    throw new Error('expected a device with timestamp-query, got one without; measure on another adapter')
  const timed: Timed[] = []
  const next = (kernel: string): Timed => {
    const index = (2 * timed.length) % MOST_QUERIES
    const last = timed.at(-1)
    const set =
      last === undefined || index === 0 ? device.createQuerySet({ type: 'timestamp', count: MOST_QUERIES }) : last.set
    const query = { kernel, set, index }
    timed.push(query)
    return query
  }
  const fence = GPUCommandEncoder.prototype
  const begin = Reflect.get(fence, 'beginComputePass') as typeof fence.beginComputePass
  fence.beginComputePass = function timedPass(this: GPUCommandEncoder) {
    return passOfPasses((timestampWrites) => begin.call(this, { timestampWrites }), next)
  }
  return {
    end: () => {
      fence.beginComputePass = begin
      return readTimes(device, timed)
    },
  }
}

type OpenPass = (writes: GPUComputePassTimestampWrites) => GPUComputePassEncoder

/** What a pass is told before a dispatch is told again to each pass of one dispatch. */
function passOfPasses(open: OpenPass, next: (kernel: string) => Timed): GPUComputePassEncoder {
  const state = new Map<string, unknown[]>()
  let kernel = ''
  const remembered =
    (name: string) =>
    (...args: unknown[]): void => {
      if (name === 'setPipeline') kernel = (args[0] as GPUComputePipeline).label
      state.set(name, args)
    }
  const dispatchWorkgroups = (x: number, y = 1): void => {
    const { set, index } = next(`${kernel} ${x}×${y}`)
    const pass = open({ querySet: set, beginningOfPassWriteIndex: index, endOfPassWriteIndex: index + 1 })
    for (const [name, args] of state) (Reflect.get(pass, name) as (...args: unknown[]) => void).apply(pass, args)
    pass.dispatchWorkgroups(x, y)
    pass.end()
  }
  const watched = ['setPipeline', 'setBindGroup', 'setImmediates'].map((name) => [name, remembered(name)] as const)
  return { ...Object.fromEntries(watched), dispatchWorkgroups, end: () => undefined } as never
}

/** The longest first. */
async function readTimes(device: GPUDevice, timed: readonly Timed[]): Promise<PassTime[]> {
  const sums = new Map<string, { ms: number; dispatches: number }>()
  for (const set of new Set(timed.map((one) => one.set))) {
    const stamps = await resolved(device, set)
    for (const { kernel, index } of timed.filter((one) => one.set === set)) {
      const sum = sums.get(kernel) ?? { ms: 0, dispatches: 0 }
      sums.set(kernel, sum)
      sum.ms += Number((stamps[index + 1] ?? 0n) - (stamps[index] ?? 0n)) / NS_PER_MS
      sum.dispatches++
    }
    set.destroy()
  }
  return [...sums].map(([kernel, sum]) => ({ kernel, ...sum })).sort((a, b) => b.ms - a.ms)
}

async function resolved(device: GPUDevice, set: GPUQuerySet): Promise<BigUint64Array> {
  const size = MOST_QUERIES * QUERY_BYTES
  const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage
  const stamps = device.createBuffer({ size, usage: QUERY_RESOLVE | COPY_SRC })
  const read = device.createBuffer({ size, usage: COPY_DST | MAP_READ })
  const encoder = device.createCommandEncoder()
  encoder.resolveQuerySet(set, 0, MOST_QUERIES, stamps, 0)
  encoder.copyBufferToBuffer(stamps, 0, read, 0, size)
  device.queue.submit([encoder.finish()])
  await read.mapAsync(GPUMapMode.READ)
  const values = new BigUint64Array(read.getMappedRange().slice(0))
  stamps.destroy()
  read.destroy()
  return values
}
