// The values of a graph. A tensor is a shape and a role; where its elements lie is the memory plan's business.

import { elementCount, type Shape } from '@starling-grid/shaders'

export type TensorRole =
  | 'input' // written by the executor before forward
  | 'target' // what the loss compares with
  | 'upstream' // ∂/∂output given from outside, in graphs without a loss
  | 'parameter' // a view into the flat parameters
  | 'parameterGradient' // a view into the flat gradient, accumulated over micro-batches
  | 'activation' // made by forward, needed until backward has read it
  | 'activationGradient'
  | 'rowLoss' // one number per row of the loss
  | 'rowCorrect' // 1 where the arg-max of the row is its target

export interface Tensor {
  readonly id: number
  readonly role: TensorRole
  /** for messages: `conv1.weight`, `relu 3` */
  readonly name: string
  /** per sample; a batch dimension leads it unless the role is a parameter's */
  readonly shape: Shape
  /** elements of one sample, or of the whole parameter */
  readonly size: number
  /** tensors with the same storage hold the same elements: a flattened tensor and its source */
  readonly storage: number
  /** first element in the flat vector, for the two parameter roles */
  readonly offset: number
}

export function isPerSample({ role }: Tensor): boolean {
  return role !== 'parameter' && role !== 'parameterGradient'
}

/** Elements that the tensor holds for this many samples. */
export function lengthFor(tensor: Tensor, samples: number): number {
  return isPerSample(tensor) ? tensor.size * samples : tensor.size
}

/** Makes the tensors of one graph, numbered from 0. */
export class TensorFactory {
  private next = 0

  create(role: TensorRole, name: string, shape: Shape, offset = 0): Tensor {
    const id = this.next++
    return { id, role, name, shape, size: elementCount(shape), storage: id, offset }
  }

  /** The same elements under another shape. */
  view(source: Tensor, shape: Shape): Tensor {
    if (elementCount(shape) !== source.size) throw new Error(`internal: [${shape.join(', ')}] is no view of ${source.name}`)
    return { ...source, id: this.next++, shape }
  }
}
