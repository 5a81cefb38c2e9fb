// What a model is: a list of layers with their attributes. Types only; parse.ts makes them from JSON.

import type { Shape } from '@starling-grid/shaders'

/** x (…, in) → (…, out), over every leading dimension */
export interface LinearLayer {
  readonly type: 'linear'
  /** its parameters are `<name>.weight` and `<name>.bias` */
  readonly name: string
  readonly out: number
  readonly bias: boolean
  /** inputs that the author expects; checked when given */
  readonly in?: number
}

/** x (C, H, W) → (out, H', W') */
export interface Conv2dLayer {
  readonly type: 'conv2d'
  readonly name: string
  readonly out: number
  readonly kernel: number
  readonly stride: number
  readonly padding: number
  readonly groups: number
  readonly bias: boolean
  /** input channels that the author expects; checked when given */
  readonly in?: number
}

export type PoolType = 'maxpool2d' | 'avgpool2d'

/** x (C, H, W) → (C, H', W'); padded cells count as −∞ for the maximum and as 0 for the average */
export interface PoolLayer<T extends PoolType = PoolType> {
  readonly type: T
  readonly kernel: number
  readonly stride: number
  readonly padding: number
}

export type ActivationType = 'relu' | 'tanh' | 'sigmoid'

export interface ActivationLayer<T extends ActivationType = ActivationType> {
  readonly type: T
}

/** x (…) → (elements,) */
export interface FlattenLayer {
  readonly type: 'flatten'
}

export type LayerSpec =
  | LinearLayer | Conv2dLayer | FlattenLayer
  | PoolLayer<'maxpool2d'> | PoolLayer<'avgpool2d'>
  | ActivationLayer<'relu'> | ActivationLayer<'tanh'> | ActivationLayer<'sigmoid'>

/** cross_entropy: softmax over the last dimension against class indices; mse: squared error against values */
export type Loss = 'cross_entropy' | 'mse'

export interface ModelSpec {
  readonly name: string
  /** shape of one sample, without the batch dimension */
  readonly input: Shape
  readonly layers: readonly LayerSpec[]
  readonly loss: Loss
  /** what stored integer inputs are multiplied by before they enter the model: 1/255 for pixels */
  readonly inputScale: number
}
