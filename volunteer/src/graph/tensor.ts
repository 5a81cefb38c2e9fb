// The values of a graph. A tensor is a shape and a role; where its elements lie is the memory plan's business.

import { elementCount, type Shape } from '@starling-grid/shaders'

export type TensorRole =
  | 'input' // written by the executor before forward
  | 'target' // what the loss compares with
  | 'keys' // one random number per sample, what dropout draws from
  | 'upstream' // ∂/∂output given from outside, in graphs without a loss
  | 'parameter' // a view into the flat parameters
  | 'fixed' // a parameter that is given and stays: no view of a flat vector
  | 'unpacked' // what is fixed and lies packed, as f32 for one call
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
  /** per sample, or of the whole value when it is shared */
  readonly shape: Shape
  /** elements of one sample, or of the whole value when it is shared */
  readonly size: number
  /** true: one value for all samples, such as a parameter or the mean over a batch */
  readonly shared: boolean
  /** tensors with the same storage hold the same elements: a flattened tensor and its source */
  readonly storage: number
  /** first element in the flat vector, for the two parameter roles; which of the fixed tensors, for that role */
  readonly offset: number
  /** of rows of a fixed tensor: its elements before them */
  readonly start?: number
}

/** Elements that the tensor holds for this many samples. */
export function lengthFor(tensor: Tensor, samples: number): number {
  return tensor.shared ? tensor.size : tensor.size * samples
}

/** Makes the tensors of one graph, numbered from 0. */
export class TensorFactory {
  #next = 0

  create(role: TensorRole, name: string, shape: Shape): Tensor {
    return this.#make({ role, name, shape, shared: false, offset: 0 })
  }

  /** One value for all samples. */
  createShared(role: TensorRole, name: string, shape: Shape): Tensor {
    return this.#make({ role, name, shape, shared: true, offset: 0 })
  }

  /** A view into a flat vector. */
  createFlat(role: 'parameter' | 'parameterGradient', name: string, shape: Shape, offset: number): Tensor {
    return this.#make({ role, name, shape, shared: true, offset })
  }

  /** `index`: which of the graph's fixed tensors */
  createFixed(name: string, shape: Shape, index: number): Tensor {
    return this.#make({ role: 'fixed', name, shape, shared: true, offset: index })
  }

  /** The same elements under another shape. */
  view(source: Tensor, shape: Shape): Tensor {
    if (elementCount(shape) !== source.size)
      throw new Error(`internal: [${shape.join(', ')}] is no view of ${source.name}`)
    return { ...source, id: this.#next++, shape }
  }

  #make(tensor: Pick<Tensor, 'role' | 'name' | 'shape' | 'shared' | 'offset'>): Tensor {
    const id = this.#next++
    return { ...tensor, id, size: elementCount(tensor.shape), storage: id }
  }
}
