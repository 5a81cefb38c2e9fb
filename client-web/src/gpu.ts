// The browser's adapter and device. Throws when there is none, and reports a software adapter.
import { type AdapterDescription, GridError } from '@starling-grid/protocol'

export interface OpenedDevice {
  readonly device: GPUDevice
  readonly adapter: AdapterDescription
  /** what the adapter said when it was asked for; some Safari 26 say it nowhere else */
  readonly facts: GPUAdapterInfo
}

/** What the kernels profit from; everything else keeps WebGPU's defaults. */
const WANTED_LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxStorageBuffersPerShaderStage',
] as const
/** Used by kernel variants where the adapter has them. WebGPU's types do not know the last, an experiment of Chromium. */
const WELCOME_FEATURES = [
  'shader-f16',
  'subgroups',
  'chromium-experimental-subgroup-matrix',
] as readonly string[] as readonly GPUFeatureName[]
const MAX_TEXT_LENGTH = 80
/** No GPU stands behind these. */
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|basic render|software/i
/** Chromium's SwiftShader names its maker only. */
const SOFTWARE_VENDOR = 'google'

/** @throws GridError 'no-adapter' */
export async function openDevice(): Promise<OpenedDevice> {
  const adapter = await requestAdapter()
  const requiredLimits = Object.fromEntries(WANTED_LIMITS.map((name) => [name, adapter.limits[name]]))
  const requiredFeatures = WELCOME_FEATURES.filter((feature) => adapter.features.has(feature))
  const device = await adapter.requestDevice({ requiredLimits, requiredFeatures })
  return { device, adapter: describeAdapter(adapter), facts: adapter.info }
}

/** @throws GridError 'no-adapter' */
export async function requestAdapter(): Promise<GPUAdapter> {
  // The type declares `gpu` as present; older browsers and insecure pages disagree.
  const gpu: GPU | undefined = navigator.gpu
  if (gpu === undefined)
    throw new GridError('no-adapter', 'expected WebGPU in this browser, got none; use another browser')
  const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' })
  if (adapter === null)
    throw new GridError('no-adapter', 'expected a graphics adapter, got none; turn on hardware acceleration')
  return adapter
}

export function describeAdapter({ info, features }: Pick<GPUAdapter, 'info' | 'features'>): AdapterDescription {
  const everything = `${info.vendor} ${info.architecture} ${info.device} ${info.description}`
  const software = info.isFallbackAdapter || info.vendor === SOFTWARE_VENDOR || SOFTWARE.test(everything)
  return {
    name: nameOf(info),
    vendor: info.vendor.slice(0, MAX_TEXT_LENGTH),
    software,
    executor: 'webgpu',
    ...(features.has('shader-f16') ? { f16: true } : {}),
  }
}

/** Browsers often hide `description`; vendor and architecture are always something. */
function nameOf(info: GPUAdapterInfo): string {
  const name = info.description || `${info.vendor} ${info.architecture}`.trim() || 'an unnamed adapter'
  return name.slice(0, MAX_TEXT_LENGTH)
}
