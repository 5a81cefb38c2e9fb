// A row of the table of layers: how attributes are read, the output shape, the parameters and the cost. Checks that
// several rows share are here too.

import { elementCount, imageSizes, type Shape } from '@starling-grid/shaders'
import { type Fields, invalid } from '../fields.ts'
import { MAX_KERNEL, MAX_SIZE } from '../limits.ts'
import type { Rope } from '../spec.ts'

/**
 * What a tensor is. 'trained' ones follow the optimizer; 'undecayed' too, but without its weight decay where the job
 * asks for that. 'statistic' ones follow what training measures, such as the running mean of a batch norm. These three
 * make the flat vector.
 */
export type ParameterKind = 'trained' | 'undecayed' | 'statistic'

/** Tensors outside the flat vector: those of an imported model, which stay, and those that the spec alone gives. */
export type FixedKind = 'frozen' | 'constant'

/**
 * Initial values: uniform over ±1/√fanIn (PyTorch's default for linear and convolution), normal, all the same, or the
 * angles of rotary positions.
 */
export type InitialValues =
  | { readonly type: 'angles'; readonly rope: Rope }
  | { readonly type: 'uniform'; readonly fanIn: number }
  | { readonly type: 'normal'; readonly deviation: number }
  | { readonly type: 'constant'; readonly value: number }

/** One named tensor that a layer holds. */
export interface ParameterSpec {
  /** how the operator calls it: `weight`, `bias`, `runningMean` … */
  readonly role: string
  /** PyTorch's name */
  readonly name: string
  readonly shape: Shape
  readonly kind: ParameterKind | FixedKind
  readonly initial: InitialValues
  /** share of each step's measurement in a statistic */
  readonly momentum?: number
  /** the tensor is another layer's, used here too */
  readonly tied?: true
  /** published files hold the matrix with rows and columns exchanged */
  readonly transposed?: true
}

export interface LayerRule<L> {
  /** Attributes, defaults filled in. */
  read(fields: Fields): L
  /** Throws GridError('model-invalid') naming `place` when the layer cannot take `inputs`. */
  shape(layer: L, inputs: readonly [Shape, ...Shape[]], place: string): Shape
  parameters(layer: L, x: Shape): ParameterSpec[]
  /** Multiply-adds of one forward pass over one sample. */
  multiplyAdds(layer: L, x: Shape, y: Shape): number
}

export const SIZE = { min: 1, max: MAX_SIZE }
export const KERNEL = { min: 1, max: MAX_KERNEL }
export const NO_PARAMETERS = (): ParameterSpec[] => []

/** A matrix or filter and its bias, as PyTorch's linear and convolution layers have them. */
export function weightAndBias(name: string, shape: Shape, bias: boolean): ParameterSpec[] {
  const initial: InitialValues = { type: 'uniform', fanIn: elementCount(shape.slice(1)) }
  const weight: ParameterSpec = { role: 'weight', name: `${name}.weight`, shape, kind: 'trained', initial }
  return bias
    ? [weight, { role: 'bias', name: `${name}.bias`, shape: shape.slice(0, 1), kind: 'undecayed', initial }]
    : [weight]
}

/** Scale 1 and shift 0 of a normalisation. */
export function scaleAndShift(name: string, size: number, shift = true): ParameterSpec[] {
  const one = (role: string, value: number): ParameterSpec => ({
    role,
    name: `${name}.${role}`,
    shape: [size],
    kind: 'undecayed',
    initial: { type: 'constant', value },
  })
  return shift ? [one('weight', 1), one('bias', 0)] : [one('weight', 1)]
}

/** The same tensors, given and not trained. */
export function frozenIf(frozen: true | undefined, parameters: ParameterSpec[]): ParameterSpec[] {
  return frozen ? parameters.map((parameter) => ({ ...parameter, kind: 'frozen' })) : parameters
}

export function requireInputs(place: string, expected: number | undefined, found: number, what: string): void {
  if (expected !== undefined && expected !== found) throw invalid(place, `${expected} ${what}`, String(found))
}

export function requireImage(place: string, x: Shape): { channels: number; height: number; width: number } {
  if (x.length !== 3) throw invalid(place, 'an image (channels, height, width)', `the shape [${x.join(', ')}]`)
  return imageSizes(x)
}
