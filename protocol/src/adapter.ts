// What computes on a volunteer, as people and the dashboard see it.

/** What computes: WebGPU, WebAssembly on the processor, or plain TypeScript there. */
export type ExecutorKind = 'reference' | 'wasm' | 'webgpu'

/** One of several devices of a machine that compute together. */
export interface AdapterPart {
  readonly name: string
  readonly vendor: string
  readonly software: boolean
  /** of each batch: 0 to 1 */
  readonly share: number
}

export interface AdapterDescription {
  /** what a person would call it, for example "SwiftShader Device (Subzero)" */
  readonly name: string
  readonly vendor: string
  /** true when no GPU stands behind it; said aloud wherever the adapter is shown */
  readonly software: boolean
  readonly executor: ExecutorKind
  /** it has the WebGPU feature shader-f16 */
  readonly f16?: true
  /** where several devices compute together; never sent: `name` says it */
  readonly parts?: readonly AdapterPart[]
}
