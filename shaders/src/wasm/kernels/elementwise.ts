// Operators that look at one element at a time, over everything in pieces, and those that only bring elements
// elsewhere.
import type { Activation, ElementwiseDims, InputActivation, KernelName } from '../../kernels.ts'
import { matrix } from '../../recipe.ts'
import { dropoutRule } from '../../reference/dropout.ts'
import { ACTIVATIONS } from '../epilogue.ts'
import {
  elementOf,
  fillRow,
  forRow,
  forStream,
  forTokens,
  partOf,
  piecesOf,
  STREAM_PIECE,
  TOKENS_OF_PIECE,
} from '../loops.ts'
import { FLOAT_BYTES, onePass, type PieceWriter, type WasmRecipe, type WasmKernel } from '../pass.ts'
import { storeFirst } from '../products.ts'
import { i32, v128, type V128 } from '../values.ts'

const { constant, add, mul } = v128

/** y = f(inputs), element by element */
export function mapped(
  name: KernelName,
  { size, slope = 0 }: { readonly size: number; readonly slope?: number },
  capacity: number,
  {
    inputs,
    output,
    f,
  }: { readonly inputs: readonly string[]; readonly output: string; f(w: PieceWriter, values: readonly V128[]): V128 },
): WasmRecipe {
  return onePass(name, {
    constants: { size, slope: { f32: slope } },
    bindings: [
      ...inputs.map((input) => matrix(input, 'read', capacity, size)),
      matrix(output, 'write', capacity, size),
    ],
    pieces: (samples) => piecesOf(samples * size, STREAM_PIECE),
    write: (w) =>
      forStream(w, size, (element) => {
        const values = inputs.map((input) => w.variable(v128.load(w.at(input, element))))
        w.store(w.at(output, element), f(w, values))
      }),
  })
}

/** The value of operand `i`. */
export function operand(values: readonly V128[], i: number): V128 {
  const value = values[i]
  if (!value) throw new Error('internal: an operator without its operand')
  return value
}

function first(values: readonly V128[]): V128 {
  return operand(values, 0)
}

function second(values: readonly V128[]): V128 {
  return operand(values, 1)
}

type Plain = Exclude<Activation, 'leaky_relu'>
type PlainOutput = Exclude<Plain, InputActivation>

export function activationForward(activation: Plain): WasmKernel<`${Plain}.forward`> {
  return (dims, capacity) =>
    mapped(`${activation}.forward`, dims, capacity, {
      inputs: ['x'],
      output: 'y',
      f: (w, values) => ACTIVATIONS[activation].apply(w, first(values), 0),
    })
}

export function activationBackward(activation: PlainOutput): WasmKernel<`${PlainOutput}.backward`> {
  return (dims, capacity) => derivative(activation, 'y', dims, capacity)
}

export function activationBackwardFromInput(activation: InputActivation): WasmKernel<`${InputActivation}.backward`> {
  return (dims, capacity) => derivative(activation, 'x', dims, capacity)
}

function derivative(activation: Plain, readOff: 'x' | 'y', dims: ElementwiseDims, capacity: number): WasmRecipe {
  return mapped(`${activation}.backward`, dims, capacity, {
    inputs: [readOff, 'dy'],
    output: 'dx',
    f: (w, values) => ACTIVATIONS[activation].derivative(w, first(values), second(values), 0),
  })
}

export const leakyReluForward: WasmKernel<'leaky_relu.forward'> = (dims, capacity) =>
  mapped('leaky_relu.forward', dims, capacity, {
    inputs: ['x'],
    output: 'y',
    f: (w, values) => ACTIVATIONS.leaky_relu.apply(w, first(values), dims.slope),
  })

export const leakyReluBackward: WasmKernel<'leaky_relu.backward'> = (dims, capacity) =>
  mapped('leaky_relu.backward', dims, capacity, {
    inputs: ['y', 'dy'],
    output: 'dx',
    f: (w, values) => ACTIVATIONS.leaky_relu.derivative(w, first(values), second(values), dims.slope),
  })

export const addForward: WasmKernel<'add.forward'> = (dims, capacity) =>
  mapped('add.forward', dims, capacity, {
    inputs: ['a', 'b'],
    output: 'y',
    f: (_, values) => add(first(values), second(values)),
  })

// x (B, size) ⇄ part of y (B, total)
export const concatForward: WasmKernel<'concat.forward'> = ({ size, offset, total }, capacity) =>
  onePass('concat.forward', {
    constants: { size, offset, total },
    bindings: [matrix('x', 'read', capacity, size), matrix('y', 'update', capacity, total)],
    pieces: (samples) => samples,
    write: (w) =>
      w.copy(
        w.at('y', i32.add(i32.mul(w.piece, total), offset)),
        w.at('x', i32.mul(w.piece, size)),
        size * FLOAT_BYTES,
      ),
  })

export const concatBackward: WasmKernel<'concat.backward'> = ({ size, offset, total }, capacity) =>
  onePass('concat.backward', {
    constants: { size, offset, total },
    bindings: [matrix('dy', 'read', capacity, total), matrix('dx', 'write', capacity, size)],
    pieces: (samples) => samples,
    write: (w) =>
      w.copy(
        w.at('dx', i32.mul(w.piece, size)),
        w.at('dy', i32.add(i32.mul(w.piece, total), offset)),
        size * FLOAT_BYTES,
      ),
  })

/** Jarzynski and Olano's pcg3d, as in the plain reference: x is the key, y the node, z the element. */
const STEP = { factor: 1664525, shift: 1013904223 } as const

function started(word: V128): V128 {
  return v128.intAdd(v128.intMul(word, v128.intConstant(STEP.factor)), v128.intConstant(STEP.shift))
}

function stirred(w: PieceWriter, [x, y, z]: readonly [V128, V128, V128]): readonly [V128, V128, V128] {
  const a = w.variable(v128.intAdd(x, v128.intMul(y, z)))
  const b = w.variable(v128.intAdd(y, v128.intMul(z, a)))
  return [a, b, w.variable(v128.intAdd(z, v128.intMul(a, b)))]
}

export const dropoutForward: WasmKernel<'dropout.forward'> = (dims, capacity, { residual }) => {
  const { threshold, scale } = dropoutRule(dims.p)
  const { size, node } = dims
  return onePass('dropout.forward', {
    constants: { size, node, threshold },
    bindings: [
      matrix('x', 'read', capacity, size),
      matrix('keys', 'read', capacity, 1),
      ...(residual ? [matrix('residual', 'read', capacity, size)] : []),
      matrix('y', 'write', capacity, size),
    ],
    pieces: (samples) => samples,
    write(w) {
      const [x, y] = [w.int(w.at('x', i32.mul(w.piece, size))), w.int(w.at('y', i32.mul(w.piece, size)))]
      const past = residual ? w.int(w.at('residual', i32.mul(w.piece, size))) : undefined
      const key = w.variable(started(v128.intSplat(i32.load(w.at('keys', w.piece)))))
      const folded = (word: V128) => w.variable(v128.xor(word, v128.intShiftRight(word, 16)))
      fillRow(w, size, y, (element) => {
        const index = v128.intAdd(v128.intSplat(element), v128.intConstant(0, 1, 2, 3))
        const [a, b, c] = stirred(w, [key, started(v128.intConstant(node)), w.variable(started(index))])
        const [hash] = stirred(w, [folded(a), folded(b), folded(c)])
        const dropped = v128.intLessUnsigned(hash, v128.intConstant(threshold | 0))
        const kept = v128.andNot(mul(v128.load(elementOf(x, element)), constant(scale)), dropped)
        return past ? add(kept, v128.load(elementOf(past, element))) : kept
      })
    },
  })
}

// ids (R,), weight (vocab, channels) → y (R, channels)
export const embeddingForward: WasmKernel<'embedding.forward'> = (dims, capacity) => {
  const { tokens, vocab, channels, first = 0 } = dims
  return onePass('embedding.forward', {
    constants: { tokens, vocab, channels, first },
    bindings: [
      matrix('ids', 'read', capacity, tokens),
      matrix('weight', 'read', vocab, channels),
      matrix('y', 'write', capacity * tokens, channels),
    ],
    pieces: (samples) => piecesOf(samples * tokens, TOKENS_OF_PIECE),
    write: (w) =>
      forTokens(w, dims, (place, row) => {
        const from = w.int(w.at('weight', i32.mul(row, channels)))
        fillRow(w, channels, w.int(w.at('y', i32.mul(place, channels))), (c) => v128.load(elementOf(from, c)))
      }),
  })
}

/** A cache line of gradients: what one piece adds to, whatever rows come to it. */
const LINE = 16

// dweight[ids] += dy
export const embeddingParameterGradient: WasmKernel<'embedding.parameterGradient'> = (
  { tokens, vocab, channels, first = 0 },
  capacity,
) =>
  onePass('embedding.parameterGradient', {
    constants: { tokens, vocab, channels, first },
    bindings: [
      matrix('ids', 'read', capacity, tokens),
      matrix('dy', 'read', capacity * tokens, channels),
      matrix('dweight', 'update', vocab, channels),
    ],
    pieces: () => piecesOf(channels, LINE),
    write(w) {
      const { start, end } = partOf(w, w.piece, channels, LINE)
      const count = channels % LINE === 0 ? LINE : w.int(i32.sub(end, start))
      w.for(0, i32.mul(w.samples, tokens), 1, (row) => {
        const id = w.int(i32.sub(i32.load(w.at('ids', row)), first))
        w.if(i32.lessUnsigned(id, vocab), () => {
          const from = w.int(w.at('dy', i32.add(i32.mul(row, channels), start)))
          const to = w.int(w.at('dweight', i32.add(i32.mul(id, channels), start)))
          fillRow(w, count, to, (c) => add(v128.load(elementOf(to, c)), v128.load(elementOf(from, c))))
        })
      })
    },
  })

// x (B, size) + weight (size,) → y (B, size)
export const positionsForward: WasmKernel<'positions.forward'> = ({ size }, capacity) =>
  onePass('positions.forward', {
    constants: { size },
    bindings: [
      matrix('x', 'read', capacity, size),
      matrix('weight', 'read', 1, size),
      matrix('y', 'write', capacity, size),
    ],
    pieces: (samples) => samples,
    write(w) {
      const from = w.int(i32.mul(w.piece, size))
      fillRow(w, size, w.int(w.at('y', from)), (element) =>
        add(v128.load(w.at('x', i32.add(from, element))), v128.load(w.at('weight', element))),
      )
    },
  })

// dweight (size,) += Σ_samples dy
export const positionsParameterGradient: WasmKernel<'positions.parameterGradient'> = ({ size }, capacity) =>
  onePass('positions.parameterGradient', {
    constants: { size },
    bindings: [matrix('dy', 'read', capacity, size), matrix('dweight', 'update', 1, size)],
    pieces: () => piecesOf(size, BLOCK),
    write(w) {
      const { start, end } = partOf(w, w.piece, size, BLOCK)
      const count = size % BLOCK === 0 ? BLOCK : w.int(i32.sub(end, start))
      forRow(w, count, (element, left) => {
        const sum = w.variable(constant(0))
        const place = w.int(i32.add(start, element))
        w.for(0, w.samples, 1, (sample) => {
          w.set(sum, add(sum, v128.load(w.at('dy', i32.add(i32.mul(sample, size), place)))))
        })
        const to = w.int(w.at('dweight', place))
        storeFirst(w, to, add(v128.load(to), sum), left)
      })
    },
  })

const BLOCK = 256
