// Passes → pipelines: texts read once, equal shaders compiled once, all in parallel, with explicit layouts
// that passes of the same signature share.

import {
  boundBindings,
  filesOf,
  KERNEL_URLS,
  passSource,
  type Binding,
  type KernelFile,
  type Pass,
} from '@starling-grid/shaders'
import { COMPUTE_STAGE } from './flags.ts'
import { RUN_BYTES } from './run-scalars.ts'

export interface CompiledPass {
  readonly pipeline: GPUComputePipeline
  readonly layout: GPUBindGroupLayout
}

export type ReadText = (url: URL) => Promise<string>

export interface CompileOptions {
  readonly readText: ReadText
  /** the scalars of a run come as immediates and not as binding 0 */
  readonly immediates: boolean
}

/** One pipeline for each pass, in order. */
export async function compilePasses(
  device: GPUDevice,
  passes: readonly Pass[],
  { readText, immediates }: CompileOptions,
): Promise<CompiledPass[]> {
  const texts = await readKernels(passes, readText)
  const layouts = new Map<string, GPUBindGroupLayout>()
  const pipelines = new Map<string, Promise<GPUComputePipeline>>()
  return Promise.all(
    passes.map(async (pass) => {
      const layout = remember(layouts, signature(pass), () => createLayout(device, pass, immediates))
      const code = passSource(
        pass,
        filesOf(pass)
          .map((file) => texts.get(file) ?? '')
          .join('\n'),
        { immediates },
      )
      const pipeline = await remember(pipelines, `${pass.entryPoint}\n${code}`, () =>
        createPipeline(device, { pass, code, layout, immediates }),
      )
      return { pipeline, layout }
    }),
  )
}

async function readKernels(passes: readonly Pass[], readText: ReadText): Promise<Map<KernelFile, string>> {
  const files = [...new Set(passes.flatMap(filesOf))]
  return new Map(await Promise.all(files.map(async (file) => [file, await readText(KERNEL_URLS[file])] as const)))
}

interface PipelineParts {
  readonly pass: Pass
  readonly code: string
  readonly layout: GPUBindGroupLayout
  readonly immediates: boolean
}

async function createPipeline(
  device: GPUDevice,
  { pass, code, layout, immediates }: PipelineParts,
): Promise<GPUComputePipeline> {
  const label = `${pass.file}.${pass.entryPoint}`
  const module = device.createShaderModule({ code, label })
  const pipelineLayout = device.createPipelineLayout({
    bindGroupLayouts: [layout],
    ...(immediates ? { immediateSize: RUN_BYTES } : {}),
  })
  try {
    return await device.createComputePipelineAsync({
      label,
      layout: pipelineLayout,
      compute: { module, entryPoint: pass.entryPoint },
    })
  } catch (cause) {
    const { messages } = await module.getCompilationInfo()
    const reasons =
      messages.length > 0 ? messages.map(({ lineNum, message }) => `line ${lineNum}: ${message}`) : [String(cause)]
    throw new Error(`internal: kernel ${label} does not compile: ${reasons.join('; ')}`, { cause })
  }
}

/** Binding 0 is the uniform `run`, where it is one. */
function createLayout(device: GPUDevice, pass: Pass, immediates: boolean): GPUBindGroupLayout {
  const types: GPUBufferBindingType[] = ['uniform', ...boundBindings(pass).map(bindingType)]
  return device.createBindGroupLayout({
    entries: types
      .map((type, binding) => ({ binding, visibility: COMPUTE_STAGE, buffer: { type } }))
      .slice(immediates ? 1 : 0),
  })
}

function signature(pass: Pass): string {
  return boundBindings(pass).map(bindingType).join()
}

function bindingType({ access }: Binding): 'read-only-storage' | 'storage' {
  return access === 'read' ? 'read-only-storage' : 'storage'
}

function remember<V>(cache: Map<string, V>, key: string, make: () => V): V {
  const found = cache.get(key) ?? make()
  cache.set(key, found)
  return found
}
