// Opens a GPU in Node through Dawn (npm `webgpu`), with all that the adapter can do for compute. Independent of models
// and plans; its counterpart in the browser has the same name. Dawn's bounds checks stay on unless a caller decides
// otherwise: shard and job contents come from strangers.
import { type AdapterDescription, GridError } from '@starling-grid/protocol'
import { isNamed } from './adapter-names.ts'
import { installPoll, waitByTimer } from './dawn-poll.ts'
import type { ListedAdapter } from './gpu-wish.ts'
import { prepareProcess } from './runtime/prepare-process.ts'

/** A device has the defaults of the specification for every limit that is not asked for by name. */
const COMPUTE_LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxUniformBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxBindingsPerBindGroup',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupSizeY',
  'maxComputeWorkgroupSizeZ',
  'maxComputeWorkgroupsPerDimension',
  'maxImmediateSize',
] as const
/** Used by kernel variants and measurements where the adapter has them. WebGPU's types do not know the last. */
const WELCOME_FEATURES = [
  'shader-f16',
  'subgroups',
  'timestamp-query',
  'chromium-experimental-subgroup-matrix',
] as readonly string[] as readonly GPUFeatureName[]

/**
 * Dawn hides matrix units behind the first and, on NVIDIA's driver, f16 behind the second. Always on, not for jobs in
 * f16 alone: a volunteer says that it has f16 before it knows of a job. Neither takes a check away. Bounds checks stay
 * on; what experiments allow must be asked for in a shader's text, and those are our own: a stranger's job names layers
 * and sizes, never text.
 */
const USED_EXPERIMENTS = ['allow_unsafe_apis', 'vulkan_enable_f16_on_nvidia']

/**
 * Off where there are software adapters alone: that the driver clears workgroup memory. SwiftShader makes a store of
 * each number of it, and compiles a kernel of 64 × 64 tiles in 1.4 s. Dawn's own loop clears as much, and the kernel
 * takes 0.4 s.
 */
const SLOW_IN_SOFTWARE = 'use_vulkan_zero_initialize_workgroup_memory_extension'

const WAYS_TO_ASK: readonly GPURequestAdapterOptions[] = [
  { powerPreference: 'high-performance' },
  { powerPreference: 'low-power' },
  { forceFallbackAdapter: true },
]

export interface OpenGpu {
  readonly device: GPUDevice
  readonly description: AdapterDescription
  /** what the adapter said when it was asked for */
  readonly facts: GPUAdapterInfo
  /** Destroys the device and lets the process exit. */
  close(): void
}

export interface OpenGpuOptions {
  /** part of the wanted adapter's name or vendor, whatever the case */
  readonly adapter?: string | undefined
  /** exactly this one, as it was listed; instead of `adapter` */
  readonly listed?: ListedAdapter | undefined
  /**
   * false: shaders run without Dawn's bounds checks (its toggle `disable_robustness`). For measurements with kernels
   * and data of one's own only: an index out of bounds then corrupts memory instead of reading zero. Tests and
   * volunteers keep the checks.
   */
  readonly boundsChecks?: boolean | undefined
  /** timestamps to the nanosecond, where Dawn rounds them to 100 µs: for measurements */
  readonly exactTimestamps?: boolean | undefined
  /** 'default': those of the specification, which the weakest adapter has; absent: all that the adapter can do */
  readonly limits?: 'default' | undefined
}

/** @throws GridError('no-adapter') saying what was tried and what to do */
export async function openGpu(options: OpenGpuOptions = {}): Promise<OpenGpu> {
  const drivers = await prepareProcess(options)
  installPoll()
  const { create, globals } = await import('webgpu')
  Object.assign(globalThis, globals)
  // Dawn stops when this object is collected, and keeps the process alive until then.
  let gpu: GPU | undefined = create(dawnFlags(options, drivers))
  const adapter = options.listed
    ? await listedAdapter(gpu, options.listed)
    : chosen(await offered(gpu), options.adapter, drivers)
  const device = await adapter.requestDevice(options.limits === 'default' ? {} : abilities(adapter))
  const description = describe(adapter)
  const stopWaitingByTimer = description.software ? waitByTimer() : () => undefined
  const close = () => {
    if (gpu === undefined) return
    device.destroy()
    gpu = undefined
    stopWaitingByTimer()
  }
  return { device, description, facts: adapter.info, close }
}

function dawnFlags(
  { boundsChecks = true, exactTimestamps = false, listed }: OpenGpuOptions,
  drivers: string,
): string[] {
  // of each option Dawn takes the last alone
  const enabled = [...USED_EXPERIMENTS, ...(boundsChecks ? [] : ['disable_robustness'])]
  const slow = drivers.includes('(software)') ? [SLOW_IN_SOFTWARE] : []
  const disabled = [...(exactTimestamps ? ['timestamp_quantization'] : []), ...slow]
  return [
    `enable-dawn-features=${enabled.join()}`,
    ...(listed ? [`backend=${listed.backend}`, `adapter=${listed.name}`] : []),
    ...(disabled.length > 0 ? [`disable-dawn-features=${disabled.join()}`] : []),
  ]
}

/** The adapter as said to people: a software adapter never passes for a GPU. */
export function adapterLabel({ name, vendor, software, parts }: AdapterDescription): string {
  if (parts !== undefined) return name // it says so of each
  return `${name} (${software ? `software, ${vendor}` : vendor})`
}

async function offered(gpu: GPU): Promise<GPUAdapter[]> {
  const adapters = new Map<string, GPUAdapter>()
  for (const way of WAYS_TO_ASK) {
    const adapter = await gpu.requestAdapter(way)
    if (adapter && !adapters.has(nameOf(adapter))) adapters.set(nameOf(adapter), adapter)
  }
  return [...adapters.values()]
}

/** Dawn takes the first whose name contains the one that it was given, or throws. */
async function listedAdapter(gpu: GPU, { name, device }: ListedAdapter): Promise<GPUAdapter> {
  const adapter = await gpu.requestAdapter().catch(() => null)
  if (adapter !== null && adapter.info.device === device) return adapter
  throw new GridError(
    'no-adapter',
    `expected the adapter "${name}" that was here before, got ${adapter === null ? 'none' : nameOf(adapter)}; ` +
      '`npm run doctor` shows what is here now',
  )
}

function chosen(adapters: readonly GPUAdapter[], wanted: string | undefined, drivers: string): GPUAdapter {
  const [first] = adapters
  if (first === undefined)
    throw new GridError(
      'no-adapter',
      `expected a WebGPU adapter, got none (drivers: ${drivers}); ${driverCure()}; \`npm run doctor\` shows details`,
    )
  if (wanted === undefined) return first
  const match = adapters.find((adapter) =>
    isNamed(wanted, [nameOf(adapter), adapter.info.vendor, adapter.info.architecture]),
  )
  if (match) return match
  throw new GridError(
    'no-adapter',
    `expected an adapter whose name contains "${wanted}", got ${adapters.map(nameOf).join(', ')}; name one of these`,
  )
}

function driverCure(): string {
  if (process.platform !== 'linux') return "update the GPU's driver"
  return "install the GPU's Vulkan driver, or a software one: `apt-get install mesa-vulkan-drivers` (Mesa 24 or later)"
}

function abilities(adapter: GPUAdapter): GPUDeviceDescriptor {
  const limits: Record<string, number> = {}
  for (const name of COMPUTE_LIMITS) {
    const value = Reflect.get(adapter.limits, name)
    if (typeof value === 'number') limits[name] = value
  }
  return {
    requiredLimits: limits,
    requiredFeatures: WELCOME_FEATURES.filter((feature) => adapter.features.has(feature)),
  }
}

function describe(adapter: GPUAdapter): AdapterDescription {
  return {
    name: nameOf(adapter),
    vendor: adapter.info.vendor,
    software: adapter.info.isFallbackAdapter,
    executor: 'webgpu',
    ...(adapter.features.has('shader-f16') ? { f16: true } : {}),
  }
}

function nameOf(adapter: GPUAdapter): string {
  return adapter.info.description || adapter.info.device
}
