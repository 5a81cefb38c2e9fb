// AdamW over four million parameters, in bytes moved per second: what a step costs beyond moving its memory.
// On a GPU against a kernel that only copies; on the CPU, where ring members apply it exactly, against TypedArray.set.
import { readFile } from 'node:fs/promises'
import { openGpu, type OpenGpu } from '@starling-grid/client-node'
import {
  applyUpdate,
  createOptimizerState,
  type KernelCall,
  type OptimizerSpec,
  SETTINGS_LENGTH,
} from '@starling-grid/shaders'
import { createGpuRunner, type GpuRunner } from '@starling-grid/volunteer'
import { kernelGraph } from '@starling-grid/volunteer/testing'
import { type BenchRow, type Contender, race } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const PARAMETERS = 4_000_000
/** p, g, m and v are read, p, m and v are written, 4 bytes each */
const ADAMW_BYTES = 28
/** f32 vectors of which a copy moves as many bytes: 7 read or written for AdamW, a copy does both */
const COPIED_VECTORS = 3.5
/** runs of one round: one takes 10 to 50 ms on software adapters */
const REPEATS = 8
const WORKGROUP = 64

export async function adamwOnGpu({ adapter, rounds, log }: SuiteOptions): Promise<BenchRow> {
  const gpu = await openGpu({ adapter })
  log(`adamw kernel: ${gpu.description.name}`)
  const { runner, run } = await adamwRunner(gpu)
  const copy = await copyContender(gpu)
  try {
    const row = { name: `adamw kernel ${PARAMETERS / 1e6} M parameters`, adapter: gpu.description.name, unit: 'GB/s' }
    return await race(row, () => gigabytes(run), { 'vec4 copy kernel': copy }, rounds)
  } finally {
    runner.destroy()
    gpu.close()
  }
}

async function adamwRunner({
  device,
  description,
}: OpenGpu): Promise<{ runner: GpuRunner; run: () => Promise<unknown> }> {
  const vectors = {
    settings: SETTINGS_LENGTH,
    gradient: PARAMETERS,
    parameters: PARAMETERS,
    mean: PARAMETERS,
    square: PARAMETERS,
  }
  const { graph, operand } = kernelGraph(
    vectors,
    (tensor) =>
      ({
        kernel: 'adamw.update',
        dims: { length: PARAMETERS },
        operands: {
          settings: tensor('settings'),
          gradient: tensor('gradient'),
          parameters: tensor('parameters'),
          mean: tensor('mean'),
          square: tensor('square'),
        },
      }) satisfies KernelCall<ReturnType<typeof tensor>>,
  )
  const runner = await createGpuRunner({
    device,
    graph,
    readText: (url) => readFile(url, 'utf8'),
    maxMicroBatch: 1,
    software: description.software,
  })
  const settings = Float32Array.of(1e-3, 0.9, 0.999, 1e-8, 0.01, 1, 0.9, 0.999)
  const random = Float32Array.from({ length: PARAMETERS }, Math.random)
  const write = Object.keys(vectors).map((name) => [operand(name), name === 'settings' ? settings : random] as const)
  await runner.run({ samples: 1, parts: ['forward'], write, read: [] })
  // Reading the settings waits for everything before it.
  const once = (last: boolean) =>
    runner.run({ samples: 1, parts: ['forward'], write: [], read: last ? [operand('settings')] : [] })
  return { runner, run: () => Promise.all(Array.from({ length: REPEATS }, (_, i) => once(i === REPEATS - 1))) }
}

async function gigabytes(run: () => Promise<unknown>): Promise<number> {
  const start = performance.now()
  await run()
  return (REPEATS * ADAMW_BYTES * PARAMETERS) / (performance.now() - start) / 1e6
}

/** A kernel of ours that moves as many bytes and computes nothing. */
async function copyContender({ device }: OpenGpu): Promise<Contender> {
  const count = (COPIED_VECTORS * PARAMETERS) / 4
  const code = `
    @group(0) @binding(0) var<storage, read> source: array<vec4f>;
    @group(0) @binding(1) var<storage, read_write> target_: array<vec4f>;
    @compute @workgroup_size(${WORKGROUP})
    fn copy(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
      let i = id.x + id.y * groups.x * ${WORKGROUP}u;
      if (i < ${count}u) { target_[i] = source[i]; }
    }`
  const pipeline = await device.createComputePipelineAsync({
    layout: 'auto',
    compute: { module: device.createShaderModule({ code }) },
  })
  const [source, target] = [0, 1].map(() =>
    device.createBuffer({ size: count * 16, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC }),
  )
  if (!source || !target) throw new Error('internal: no buffers')
  const fence = device.createBuffer({ size: 16, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST })
  const bindGroup = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: [source, target].map((buffer, binding) => ({ binding, resource: { buffer } })),
  })
  const groups = Math.ceil(count / WORKGROUP)
  const width = Math.min(groups, device.limits.maxComputeWorkgroupsPerDimension)
  return () =>
    gigabytes(async () => {
      const encoder = device.createCommandEncoder()
      const pass = encoder.beginComputePass()
      pass.setPipeline(pipeline)
      pass.setBindGroup(0, bindGroup)
      for (let i = 0; i < REPEATS; i++) pass.dispatchWorkgroups(width, Math.ceil(groups / width))
      pass.end()
      encoder.copyBufferToBuffer(target, 0, fence, 0, 16)
      device.queue.submit([encoder.finish()])
      await fence.mapAsync(GPUMapMode.READ)
      fence.unmap()
    })
}

export async function adamwOnCpu({ rounds, log }: SuiteOptions): Promise<BenchRow> {
  log('exact adamw on the CPU')
  const spec: OptimizerSpec = { type: 'adamw', lr: 1e-3 }
  const random = () => Float32Array.from({ length: PARAMETERS }, Math.random)
  const [parameters, gradient, next] = [random(), random(), random()]
  const [state, nextState] = [createOptimizerState(spec, PARAMETERS), createOptimizerState(spec, PARAMETERS)]
  const copied = Array.from({ length: ADAMW_BYTES / 4 }, () => ({ from: random(), to: random() }))
  const update = () => applyUpdate(spec, state, parameters, gradient, next, nextState)
  const copy = () => copied.forEach(({ from, to }) => to.set(from))
  const timed =
    (work: () => void): Contender =>
    () =>
      gigabytes(async () => {
        for (let i = 0; i < REPEATS; i++) work()
      })
  const row = {
    name: `adamw exact on the CPU ${PARAMETERS / 1e6} M parameters`,
    adapter: 'CPU, 1 thread',
    unit: 'GB/s',
  }
  return race(row, timed(update), { 'TypedArray.set of 28 bytes per parameter': timed(copy) }, rounds)
}
