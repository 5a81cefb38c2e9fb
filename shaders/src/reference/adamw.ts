// Adam and AdamW with PyTorch's semantics, bit-exact on every machine (see sgd.ts for why it is).
// β₁ᵗ and β₂ᵗ come in as repeated products: Math.pow differs between machines.
// Out of place: `to` may hold the same arrays as `from`.

const f32 = Math.fround

export interface AdamSettings {
  readonly lr: number
  readonly beta1: number
  readonly beta2: number
  readonly eps: number
  readonly weightDecay: number
  /** true: decay shrinks the parameter (AdamW); false: decay joins the gradient (Adam) */
  readonly decoupled: boolean
  /** β₁ᵗ for the step t being taken, counted from 1 */
  readonly beta1Power: number
  /** β₂ᵗ */
  readonly beta2Power: number
}

export interface AdamVectors {
  readonly parameters: Float32Array
  /** m: running mean of the gradient */
  readonly mean: Float32Array
  /** v: running mean of its square */
  readonly square: Float32Array
}

// m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  p ← p − lr/(1−β₁ᵗ) · m / (√v / √(1−β₂ᵗ) + eps)
export function adam(settings: AdamSettings, from: AdamVectors, gradient: Float32Array, to: AdamVectors): void {
  const { parameters, mean, square } = from
  const beta1 = f32(settings.beta1)
  const beta2 = f32(settings.beta2)
  const rest1 = f32(1 - settings.beta1)
  const rest2 = f32(1 - settings.beta2)
  const eps = f32(settings.eps)
  const stepSize = f32(settings.lr / (1 - settings.beta1Power))
  const rootCorrection = f32(Math.sqrt(1 - settings.beta2Power))
  const shrink = settings.decoupled ? f32(1 - settings.lr * settings.weightDecay) : 1
  const decay = settings.decoupled ? 0 : f32(settings.weightDecay)
  for (let i = 0; i < parameters.length; i++) {
    const old = parameters[i] ?? 0
    const raw = gradient[i] ?? 0
    const g = decay === 0 ? raw : f32(raw + f32(decay * old))
    const m = f32(f32(beta1 * (mean[i] ?? 0)) + f32(rest1 * g))
    const v = f32(f32(beta2 * (square[i] ?? 0)) + f32(rest2 * f32(g * g)))
    to.mean[i] = m
    to.square[i] = v
    const denominator = f32(f32(f32(Math.sqrt(v)) / rootCorrection) + eps)
    to.parameters[i] = f32(f32(shrink * old) - f32(f32(stepSize * m) / denominator))
  }
}
