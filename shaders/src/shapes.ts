// Shape rules of the operators. Shapes are per sample: a leading batch dimension is implied everywhere.
// The model package validates what a person wrote; here a misfit is a bug.

export type Shape = readonly number[]

export interface Pool2dAttrs {
  readonly kernel: number
  readonly stride: number
  readonly padding: number
}

export interface Conv2dAttrs extends Pool2dAttrs {
  readonly groups: number
}

/** How many elements a tensor of this shape has; 1 for a scalar. */
export function elementCount(shape: Shape): number {
  return shape.reduce((product, size) => product * size, 1)
}

/** Positions of a window along one axis: partial windows at the end are dropped, as PyTorch does. */
export function windowCount(size: number, { kernel, stride, padding }: Pool2dAttrs): number {
  return Math.floor((size + 2 * padding - kernel) / stride) + 1
}

/** The three sizes of an image shape. */
export function imageSizes(shape: Shape): { channels: number; height: number; width: number } {
  const [channels, height, width] = shape
  if (shape.length !== 3 || channels === undefined || height === undefined || width === undefined)
    throw new Error(`internal: [${shape.join(', ')}] is not (channels, height, width)`)
  return { channels, height, width }
}

/** The last size of a shape: features, or classes. */
export function lastSize(shape: Shape): number {
  const size = shape.at(-1)
  if (size === undefined) throw new Error('internal: a scalar has no last size')
  return size
}

// x (…, in) → y (…, out)
export function linearShape(x: Shape, out: number): Shape {
  return [...x.slice(0, -1), out]
}

// x (C, H, W) → y (O, H', W')
export function conv2dShape(x: Shape, out: number, attrs: Conv2dAttrs): Shape {
  const { height, width } = imageSizes(x)
  return [out, windowCount(height, attrs), windowCount(width, attrs)]
}

// x (C, H, W) → y (C, H', W')
export function pool2dShape(x: Shape, attrs: Pool2dAttrs): Shape {
  const { channels, height, width } = imageSizes(x)
  return [channels, windowCount(height, attrs), windowCount(width, attrs)]
}

// x (…) → y (elements,)
export function flattenShape(x: Shape): Shape {
  return [elementCount(x)]
}
