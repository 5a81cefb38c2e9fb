// What a model asks of those who train it, for owners and volunteers to see.
import { activationBytesPerSample, type ModelSpec, parameterCount } from '@starling-grid/model'

export interface ModelSize {
  readonly parameters: number
  /** bytes of the values that training on one sample keeps */
  readonly activationBytes: number
}

export function modelSize(model: ModelSpec): ModelSize {
  return { parameters: parameterCount(model), activationBytes: activationBytesPerSample(model) }
}
