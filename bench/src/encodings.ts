// The encodings that are measured, by name.
import { type Encoding, squareShape, startFeedback, startPowerSgd } from '@starling-grid/volunteer/collectives'

export type EncodingName = 'f32' | 'f16' | 'int8' | 'top-k 1 %' | 'PowerSGD r2'

/** With empty residuals. */
export function startEncoding(name: EncodingName, length: number): Encoding {
  const shape = squareShape(length, 2)
  const feedback = startFeedback(length)
  switch (name) {
    case 'f32':
      return { type: 'f32' }
    case 'f16':
      return { type: 'f16', feedback }
    case 'int8':
      return { type: 'int8', feedback }
    case 'top-k 1 %':
      return { type: 'top-k', fraction: 0.01, feedback }
    case 'PowerSGD r2':
      return { type: 'power-sgd', shape, state: startPowerSgd(shape, length, 1), next: startPowerSgd(shape, length, 1) }
    default:
      return name satisfies never
  }
}
