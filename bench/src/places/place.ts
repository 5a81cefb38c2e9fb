// Where libraries are measured side by side.
import type { GpuCalls } from '../gpu-calls.ts'
import type { Library, Missing } from '../library.ts'

export interface BenchPlace {
  readonly name: 'node' | 'browser'
  /** the adapter that all libraries with `webgpu` share */
  readonly adapter: string
  /** Starling first */
  readonly libraries: readonly Library[]
  readonly missing: readonly Missing[]
  /** what all libraries together have asked of WebGPU so far */
  gpuCalls(): Promise<GpuCalls>
  close(): Promise<void>
}
