// Plain dropout: y = x · scale, or 0 where the hash of (key of the sample, node, element) is below the threshold, +
// residual. Equal to the shader bit for bit where none is added: the hash is of integers, and the one product is
// rounded once.

import type { DropoutDims, KernelOperands } from '../kernels.ts'

export function dropoutForward(
  dims: DropoutDims,
  samples: number,
  { x, keys, residual, y }: KernelOperands<'dropout.forward', Float32Array, Int32Array>,
): void {
  const { threshold, scale } = dropoutRule(dims.p)
  for (let i = 0; i < samples * dims.size; i++) {
    const dropped = hash(keys[Math.floor(i / dims.size)] ?? 0, dims.node, i % dims.size) < threshold
    y[i] = dropped ? 0 : (x[i] ?? 0) * scale
    if (residual) y[i] = (y[i] ?? 0) + (residual[i] ?? 0)
  }
}

/** Hashes below `threshold` drop an element; the others are scaled up, so that the expected value stays. */
export function dropoutRule(p: number): { readonly threshold: number; readonly scale: number } {
  return { threshold: Math.floor(p * 2 ** 32), scale: Math.fround(1 / (1 - p)) }
}

/**
 * Source: Jarzynski and Olano, Hash Functions for GPU Rendering, Journal of Computer Graphics Techniques 9(3), 2020,
 * pcg3d.
 */
function hash(key: number, node: number, element: number): number {
  const start = (word: number) => (Math.imul(word, 1664525) + 1013904223) | 0
  const first = stir(start(key), start(node), start(element))
  const [x] = stir(...(first.map((word) => word ^ (word >>> 16)) as [number, number, number]))
  return x >>> 0
}

function stir(x: number, y: number, z: number): [number, number, number] {
  const a = (x + Math.imul(y, z)) | 0
  const b = (y + Math.imul(z, a)) | 0
  return [a, b, (z + Math.imul(a, b)) | 0]
}
