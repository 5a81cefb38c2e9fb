// What an adapter could compute if nothing had to be loaded: multiply-adds on registers only. The fraction of it that a
// matrix product reaches shows how much time memory costs.
import { readFile } from 'node:fs/promises'
import { openGpu, type OpenGpu } from '@starling-grid/client-node'
import { starlingOn } from './libraries/starling.ts'
import { type BenchRow, type Contender, race } from './row.ts'
import type { SuiteOptions } from './suite.ts'
import { flopsOf, type MatmulTask } from './task.ts'

const TASK: MatmulTask = { kind: 'matmul', size: 512 }
/** products of one round: each takes 5 to 60 ms on software adapters */
const REPEATS = 8
const WORKGROUP = 32
const WORKGROUPS = 256
/** independent sums of an invocation, which hide each other's latency */
const CHAINS = 8
const TURNS = 4096
const FLOPS = WORKGROUPS * WORKGROUP * TURNS * CHAINS * 4 * 2

/** The matrix product beside multiply-adds on registers; the ratio is the share reached. */
export async function shareOfPeak({ adapter, rounds, log }: SuiteOptions): Promise<BenchRow> {
  const gpu = await openGpu({ adapter })
  log(`share of the peak: ${gpu.description.name}`)
  const product = await starlingOn({
    device: gpu.device,
    adapter: gpu.description,
    readText: (url) => readFile(url, 'utf8'),
  }).prepare(TASK)
  try {
    const row = {
      name: `matmul ${TASK.size} beside multiply-adds on registers`,
      adapter: gpu.description.name,
      unit: 'GFLOP/s',
    }
    const ours: Contender = async () => (REPEATS * flopsOf(TASK)) / (await product.time(REPEATS)) / 1e6
    return await race(row, ours, { 'registers only': await peakContender(gpu) }, rounds)
  } finally {
    await product.close()
    gpu.close()
  }
}

async function peakContender({ device }: OpenGpu): Promise<Contender> {
  const sums = Array.from({ length: CHAINS }, (_, i) => `s${i}`)
  const fmas = sums.map((name) => `${name} = ${name} * factor + factor;`).join(' ')
  const code = `
    @group(0) @binding(0) var<storage, read_write> data: array<vec4f, ${WORKGROUP * WORKGROUPS}>;
    @compute @workgroup_size(${WORKGROUP})
    fn peak(@builtin(global_invocation_id) id: vec3u) {
      let factor = data[id.x];
      ${sums.map((name, i) => `var ${name} = factor + ${i}.0;`).join(' ')}
      for (var turn = 0u; turn < ${TURNS}u; turn++) { ${fmas} }
      data[id.x] = ${sums.join(' + ')};
    }`
  const pipeline = await device.createComputePipelineAsync({
    layout: 'auto',
    compute: { module: device.createShaderModule({ code }) },
  })
  const buffer = device.createBuffer({ size: WORKGROUP * WORKGROUPS * 16, usage: GPUBufferUsage.STORAGE })
  const group = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: [{ binding: 0, resource: { buffer } }],
  })
  return async () => {
    const start = performance.now()
    const encoder = device.createCommandEncoder()
    const pass = encoder.beginComputePass()
    pass.setPipeline(pipeline)
    pass.setBindGroup(0, group)
    pass.dispatchWorkgroups(WORKGROUPS)
    pass.end()
    device.queue.submit([encoder.finish()])
    await device.queue.onSubmittedWorkDone()
    return FLOPS / (performance.now() - start) / 1e6
  }
}
