// A program for gpu.test.ts: doubles four numbers on the GPU, prints them, closes, and must then end by itself.
import { openGpu } from '../src/gpu.ts'

// From the WebGPU specification; TypeScript's library has the types but not these values.
const Usage = { MAP_READ: 0x1, COPY_SRC: 0x4, COPY_DST: 0x8, STORAGE: 0x80 } as const
const MAP_FOR_READING = 0x1

const gpu = await openGpu({ adapter: process.argv[2] })
const { device, description } = gpu
const doubled = await double(new Float32Array([1, 2, 3, 4]))
const { maxStorageBufferBindingSize, maxComputeInvocationsPerWorkgroup } = device.limits
console.log(JSON.stringify({ doubled, description, maxStorageBufferBindingSize, maxComputeInvocationsPerWorkgroup }))
gpu.close()
gpu.close()

async function double(values: Float32Array<ArrayBuffer>): Promise<number[]> {
  const code =
    '@group(0) @binding(0) var<storage, read_write> x: array<f32>; @compute @workgroup_size(4) ' +
    'fn main(@builtin(local_invocation_index) i: u32) { x[i] *= 2; }'
  const pipeline = device.createComputePipeline({
    layout: 'auto',
    compute: { module: device.createShaderModule({ code }) },
  })
  const buffer = device.createBuffer({
    size: values.byteLength,
    usage: Usage.STORAGE | Usage.COPY_DST | Usage.COPY_SRC,
  })
  const result = device.createBuffer({ size: values.byteLength, usage: Usage.MAP_READ | Usage.COPY_DST })
  device.queue.writeBuffer(buffer, 0, values)
  const encoder = device.createCommandEncoder()
  const pass = encoder.beginComputePass()
  pass.setPipeline(pipeline)
  pass.setBindGroup(
    0,
    device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries: [{ binding: 0, resource: { buffer } }] }),
  )
  pass.dispatchWorkgroups(1)
  pass.end()
  encoder.copyBufferToBuffer(buffer, 0, result, 0, values.byteLength)
  device.queue.submit([encoder.finish()])
  await result.mapAsync(MAP_FOR_READING)
  return [...new Float32Array(result.getMappedRange())]
}
