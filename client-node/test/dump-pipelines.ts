// Run by gpu-compilers.test.ts in a process of its own, whose output goes to a file: the SPIR-V that Dawn makes of
// every kernel that a GPU is given first for a few models, at one of its sizes. Each begins with a line `@@@ name`.
// usage: dump-pipelines.ts [few-registers], for GPUs of laptops
import { writeSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { gpt, lenet5, resnet } from '@starling-grid/model'
import { filesOf, KERNEL_URLS, type Pass, passSource, PLAIN_TRAITS } from '@starling-grid/shaders'
import { buildGraph, planGraph } from '@starling-grid/volunteer'
import { prepareProcess } from '../src/runtime/prepare-process.ts'

const GIBIBYTE = 1024 ** 3
const TRAITS = { ...PLAIN_TRAITS, software: false, fewRegisters: process.argv[2] === 'few-registers' }
const LIMITS = {
  maxStorageBufferBindingSize: 4 * GIBIBYTE,
  maxBufferSize: 4 * GIBIBYTE,
  maxStorageBuffersPerShaderStage: 8,
}
/** Heads of 64 and of 128. */
const MODELS = [
  { spec: lenet5(), samples: 64 },
  { spec: resnet(), samples: 64 },
  { spec: gpt({ blocks: 1, heads: 6, channels: 384, context: 256, vocab: 65 }), samples: 64 },
  { spec: gpt({ blocks: 1, heads: 6, channels: 768, context: 512, vocab: 50_257 }), samples: 4 },
]

async function sourceOf(pass: Pass): Promise<string> {
  const texts = await Promise.all(filesOf(pass).map((file) => readFile(KERNEL_URLS[file], 'utf8')))
  return passSource(pass, texts.join('\n'))
}

await prepareProcess()
const { create, globals } = await import('webgpu')
Object.assign(globalThis, globals)
const gpu = create(['enable-dawn-features=dump_shaders'])
const device = await (await gpu.requestAdapter())?.requestDevice()
if (!device) throw new Error('expected an adapter, got none')
const seen = new Set<string>()
for (const { spec, samples } of MODELS) {
  const { parts } = planGraph(buildGraph(spec), {
    traits: TRAITS,
    limits: LIMITS,
    maxMicroBatch: samples,
  })
  for (const { pass, origin } of [...parts.forward, ...parts.loss, ...parts.backward]) {
    const name = `${spec.name} ${origin.kernel} by ${origin.variant}: ${pass.file}.${pass.entryPoint}`
    const size = `${name} ${spec.input.join('×')}`
    if (seen.has(size)) continue
    seen.add(size)
    writeSync(1, `\n@@@ ${name}\n`)
    const code = await sourceOf(pass)
    const module = device.createShaderModule({ code })
    device.createComputePipeline({ layout: 'auto', compute: { module, entryPoint: pass.entryPoint } })
    await device.queue.onSubmittedWorkDone()
  }
}
// Dawn keeps the process alive otherwise
process.exit(0)
