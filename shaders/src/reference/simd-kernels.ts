// The optimizers' formulas for WebAssembly SIMD, operation for operation those of adamw.ts, sgd.ts and
// sum-of-squares.ts. They run over whole vectors block by block, through a buffer that stays in the cache. A test holds
// the two sides to the same bits.

import { BLOCK, type Formula, formula, simdModule, SLOTS, type Kernel, VECTOR_BYTES } from './simd-module.ts'

/**
 * Where a kernel finds its vectors in a block. Each is read before it is written, so the new values take the place of
 * the old.
 */
export const SLOT = { parameters: 0, gradient: 1, mean: 2, velocity: 2, square: 3 } as const

/** Of kernels that bring a vector down to some numbers: what they read, and the four that go from block to block. */
const FOLD = { values: 0, result: 1 } as const

/** Element of the mean gradient; `first`: number of the scalar that is Σ targets. */
const meanOf = (f: Formula, first: number) =>
  f.multiply(f.divide(f.load(SLOT.gradient), f.scalar(first)), f.scalar(first + 1))

// scalars: Σ targets, factor, β₁, 1−β₁, β₂, 1−β₂, step size, √(1−β₂ᵗ), eps, shrink, and weight decay where it joins the
// gradient
function adamKernel(joined: boolean): Kernel {
  const scalars = joined ? 11 : 10
  const f = formula(scalars)
  const [g, m, v] = [f.local(0), f.local(1), f.local(2)]
  const [beta1, rest1, beta2, rest2] = [f.scalar(2), f.scalar(3), f.scalar(4), f.scalar(5)]
  const [stepSize, rootCorrection, eps, shrink, decay] = [
    f.scalar(6),
    f.scalar(7),
    f.scalar(8),
    f.scalar(9),
    f.scalar(10),
  ]
  const old = f.load(SLOT.parameters)
  const raw = meanOf(f, 0)
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

// scalars: Σ targets, factor, lr, momentum, weight decay; a kernel without one of them ignores it
function sgdKernel({ moving, nesterov, decayed }: SgdVariant): Kernel {
  const f = formula(5)
  const [lr, momentum, decay] = [f.scalar(2), f.scalar(3), f.scalar(4)]
  const [g, v] = [f.local(0), f.local(1)]
  const [old, raw] = [f.load(SLOT.parameters), meanOf(f, 0)]
  const velocity = moving
    ? [f.keep(1, f.add(f.multiply(momentum, f.load(SLOT.velocity)), g)), f.store(SLOT.velocity, v)]
    : []
  const direction = (): ReturnType<typeof f.add> => {
    if (!moving) return g
    return nesterov ? f.add(g, f.multiply(momentum, v)) : v
  }
  return {
    name: sgdName({ moving, nesterov, decayed }),
    scalars: 5,
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

// scalar: Σ targets. Squares of the mean in f64: sums of elements 0 and 1, and of 2 and 3, of each four
function squaresKernel(): Kernel {
  const f = formula(1)
  const [mean, part] = [f.local(2), f.local(3)]
  const addSquare = (sum: number, half: ReturnType<typeof f.low64>) => [
    f.keep(3, half),
    f.keep(sum, f.add64(f.local(sum), f.multiply64(part, part))),
  ]
  return {
    name: 'squares',
    scalars: 1,
    locals: 4,
    before: [0, 1].map((sum) => f.keep(sum, f.first(FOLD.result, sum))),
    body: [
      f.keep(2, f.divide(f.load(FOLD.values), f.scalar(0))),
      ...addSquare(0, f.low64(mean)),
      ...addSquare(1, f.high64(mean)),
    ],
    after: [0, 1].map((sum) => f.storeFirst(FOLD.result, sum, f.local(sum))),
  }
}

// x − x has no bit set for every finite x, and is NaN otherwise
function finiteKernel(): Kernel {
  const f = formula(0)
  const x = f.load(FOLD.values)
  return {
    name: 'notFinite',
    scalars: 0,
    locals: 1,
    before: [f.keep(0, f.first(FOLD.result, 0))],
    body: [f.keep(0, f.or(f.local(0), f.subtract(x, x)))],
    after: [f.storeFirst(FOLD.result, 0, f.local(0))],
  }
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
    squaresKernel(),
    finiteKernel(),
    {
      name: 'addScaled',
      scalars: 1,
      locals: 0,
      body: [f.store(0, f.add(f.load(0), f.multiply(f.scalar(0), f.load(1))))],
    },
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

export interface Simd {
  /** Runs a kernel over vectors of one length. */
  run(kernel: string, scalars: readonly number[], vectors: readonly SimdVector[]): void
  /** Brings whole groups of four down to two vectors, as four f64: until the next call. */
  fold(kernel: string, scalars: readonly number[], values: Float32Array): Float64Array
}

type Walk = (bytes: number, ...scalars: readonly number[]) => void

/** @throws whatever this place has against the module: no SIMD, no WebAssembly, or a page that forbids it */
export function createSimd(): Simd {
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(simdModule(kernels())))
  const memory = exports['blocks']
  if (!(memory instanceof WebAssembly.Memory)) throw new Error('internal: the module has no memory')
  const addressOf = (slot: number) => slot * BLOCK * Float32Array.BYTES_PER_ELEMENT
  const slots = Array.from({ length: SLOTS }, (_, i) => new Float32Array(memory.buffer, addressOf(i), BLOCK))
  const folded = new Float64Array(memory.buffer, addressOf(FOLD.result), (2 * VECTOR_BYTES) / 8)
  const run: Simd['run'] = (kernel, scalars, vectors) => {
    const walk = exports[kernel]
    if (typeof walk !== 'function') throw new Error(`internal: no SIMD kernel "${kernel}"`)
    walkBlocks(walk as Walk, scalars, { vectors, slots })
  }
  return {
    run,
    fold(kernel, scalars, values) {
      folded.fill(0)
      run(kernel, scalars, [{ slot: FOLD.values, from: values }])
      return folded
    },
  }
}

interface Walked {
  readonly vectors: readonly SimdVector[]
  readonly slots: readonly Float32Array[]
}

function walkBlocks(walk: Walk, scalars: readonly number[], { vectors, slots }: Walked): void {
  const length = vectors[0]?.from.length ?? 0
  for (let start = 0; start < length; start += BLOCK) {
    const end = Math.min(start + BLOCK, length)
    for (const { slot, from } of vectors) slots[slot]?.set(from.subarray(start, end))
    // Whole groups of four: what lies behind the last element is computed and not used.
    walk(Math.ceil((end - start) / 4) * 4 * Float32Array.BYTES_PER_ELEMENT, ...scalars)
    for (const { slot, to } of vectors) if (to) copyOut(slots[slot], to, { start, end })
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
