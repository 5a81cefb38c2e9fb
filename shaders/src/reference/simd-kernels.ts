// The optimizers' formulas for WebAssembly SIMD, operation for operation those of adamw.ts, sgd.ts and
// sum-of-squares.ts. They run over whole vectors block by block, through a buffer that stays in the cache. A test holds
// the two sides to the same bits.

import { BLOCK, formula, simdModule, SLOTS, type Kernel } from './simd-module.ts'

/**
 * Where a kernel finds its vectors in a block. Each is read before it is written, so the new values take the place of
 * the old.
 */
export const SLOT = { parameters: 0, gradient: 1, mean: 2, velocity: 2, square: 3 } as const

// scalars: β₁, 1−β₁, β₂, 1−β₂, step size, √(1−β₂ᵗ), eps, shrink, and weight decay where it joins the gradient
function adamKernel(joined: boolean): Kernel {
  const scalars = joined ? 9 : 8
  const f = formula(scalars)
  const [g, m, v] = [f.local(0), f.local(1), f.local(2)]
  const [beta1, rest1, beta2, rest2] = [f.scalar(0), f.scalar(1), f.scalar(2), f.scalar(3)]
  const [stepSize, rootCorrection, eps, shrink, decay] = [
    f.scalar(4),
    f.scalar(5),
    f.scalar(6),
    f.scalar(7),
    f.scalar(8),
  ]
  const old = f.load(SLOT.parameters)
  const raw = f.load(SLOT.gradient)
  const denominator = f.add(f.divide(f.root(v), rootCorrection), eps)
  return {
    name: joined ? 'adamJoined' : 'adam',
    scalars,
    locals: 3,
    body: [
      f.keep(0, joined ? f.add(raw, f.multiply(decay, old)) : raw),
      f.keep(1, f.add(f.multiply(beta1, f.load(SLOT.mean)), f.multiply(rest1, g))),
      f.keep(2, f.add(f.multiply(beta2, f.load(SLOT.square)), f.multiply(rest2, f.multiply(g, g)))),
      f.store(SLOT.parameters, f.subtract(f.multiply(shrink, old), f.divide(f.multiply(stepSize, m), denominator))),
      f.store(SLOT.mean, m),
      f.store(SLOT.square, v),
    ],
  }
}

// scalars: lr, momentum, weight decay; a kernel without one of them ignores it
function sgdKernel({ moving, nesterov, decayed }: SgdVariant): Kernel {
  const f = formula(3)
  const [lr, momentum, decay] = [f.scalar(0), f.scalar(1), f.scalar(2)]
  const [g, v] = [f.local(0), f.local(1)]
  const [old, raw] = [f.load(SLOT.parameters), f.load(SLOT.gradient)]
  const velocity = moving
    ? [f.keep(1, f.add(f.multiply(momentum, f.load(SLOT.velocity)), g)), f.store(SLOT.velocity, v)]
    : []
  const direction = (): ReturnType<typeof f.add> => {
    if (!moving) return g
    return nesterov ? f.add(g, f.multiply(momentum, v)) : v
  }
  return {
    name: sgdName({ moving, nesterov, decayed }),
    scalars: 3,
    locals: 2,
    body: [
      f.keep(0, decayed ? f.add(raw, f.multiply(decay, old)) : raw),
      ...velocity,
      f.store(SLOT.parameters, f.subtract(old, f.multiply(lr, direction()))),
    ],
  }
}

export interface SgdVariant {
  readonly moving: boolean
  readonly nesterov: boolean
  readonly decayed: boolean
}

export function sgdName({ moving, nesterov, decayed }: SgdVariant): string {
  return `sgd${moving ? 'Moving' : ''}${moving && nesterov ? 'Nesterov' : ''}${decayed ? 'Decayed' : ''}`
}

function kernels(): Kernel[] {
  const f = formula(1)
  const both = [false, true]
  const sgds = both.flatMap((decayed) => [
    { moving: false, nesterov: false, decayed },
    ...both.map((nesterov) => ({ moving: true, nesterov, decayed })),
  ])
  return [
    ...both.map(adamKernel),
    ...sgds.map(sgdKernel),
    { name: 'scale', scalars: 1, locals: 0, body: [f.store(0, f.multiply(f.load(0), f.scalar(0)))] },
    { name: 'divide', scalars: 1, locals: 0, body: [f.store(0, f.divide(f.load(0), f.scalar(0)))] },
  ]
}

/** A vector of a run: where a kernel finds it, where it is read, and where its new values go, if it gets any. */
export interface SimdVector {
  readonly slot: number
  readonly from: Float32Array
  readonly to?: Float32Array
}

/** Runs a kernel over vectors of one length. */
export type SimdRun = (kernel: string, scalars: readonly number[], vectors: readonly SimdVector[]) => void

/** @throws whatever this place has against the module: no SIMD, no WebAssembly, or a page that forbids it */
export function createSimdRun(): SimdRun {
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(simdModule(kernels())))
  const memory = exports['blocks']
  if (!(memory instanceof WebAssembly.Memory)) throw new Error('internal: the module has no memory')
  const slots = Array.from(
    { length: SLOTS },
    (_, i) => new Float32Array(memory.buffer, i * BLOCK * Float32Array.BYTES_PER_ELEMENT, BLOCK),
  )
  return (kernel, scalars, vectors) => {
    const walk = exports[kernel]
    if (typeof walk !== 'function') throw new Error(`internal: no SIMD kernel "${kernel}"`)
    const length = vectors[0]?.from.length ?? 0
    for (let start = 0; start < length; start += BLOCK) {
      const end = Math.min(start + BLOCK, length)
      for (const { slot, from } of vectors) slots[slot]?.set(from.subarray(start, end))
      // Whole groups of four: what lies behind the last element is computed and not used.
      walk(Math.ceil((end - start) / 4) * 4 * Float32Array.BYTES_PER_ELEMENT, ...scalars)
      for (const { slot, to } of vectors) if (to) copyOut(slots[slot], to, { start, end })
    }
  }
}

function copyOut(
  block: Float32Array | undefined,
  to: Float32Array,
  { start, end }: { readonly start: number; readonly end: number },
): void {
  if (block === undefined) throw new Error('internal: no such slot')
  to.set(end - start === BLOCK ? block : block.subarray(0, end - start), start)
}
