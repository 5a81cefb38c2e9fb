/** The limits of an adapter that a plan can meet. */
export interface AdapterLimits {
  readonly maxStorageBufferBindingSize: number
  readonly maxBufferSize: number
  readonly maxStorageBuffersPerShaderStage: number
}
