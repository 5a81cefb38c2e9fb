// Batch norm and group norm: x̂ = (x − mean) · inverse, y = x̂ · weight + bias. x (B, C, plane), weight, bias (C,). A
// statistic covers one channel in all samples, or neighbouring channels of one sample: a piece each.
import type { ChannelNormDims } from '../../kernels.ts'
import { matrix } from '../../recipe.ts'
import { elementOf, fillRow, partOf, piecesOf, sumRow } from '../loops.ts'
import { onePass, type PieceWriter, wasmPass, type WasmRecipe, type WasmKernel } from '../pass.ts'
import { f32, type F32, float, i32, type I32, type Int, v128, type V128 } from '../values.ts'

const { add, mul, sub } = v128

type NormSpan = 'batch' | 'sample'
const NAMES = { batch: 'batchnorm2d', sample: 'groupnorm' } as const
/** Planes, and channels, of a piece of the backward pass. */
const PLANES = 4
const CHANNELS = 16

/** The planes of the piece's statistic: body(plane, its channel) */
function forPlanes(
  w: PieceWriter,
  span: NormSpan,
  { channels, groupChannels }: ChannelNormDims,
  body: (plane: I32, channel: I32) => void,
): void {
  if (span === 'batch')
    w.for(0, w.samples, 1, (sample) => body(w.int(i32.add(i32.mul(sample, channels), w.piece)), w.piece))
  else
    w.for(0, groupChannels, 1, (c) => {
      const plane = w.int(i32.add(i32.mul(w.piece, groupChannels), c))
      body(plane, w.int(i32.remUnsigned(plane, channels)))
    })
}

/** Elements of a statistic. */
function countOf(w: PieceWriter, span: NormSpan, { plane, groupChannels }: ChannelNormDims): F32 {
  const count: Int = span === 'batch' ? i32.mul(w.samples, plane) : plane * groupChannels
  return w.variable(f32.ofInt(count))
}

function statistics(span: NormSpan, { channels, groupChannels }: ChannelNormDims, samples: number): number {
  return span === 'batch' ? channels : (samples * channels) / groupChannels
}

/** Σ over all planes of the statistic */
function total(w: PieceWriter, span: NormSpan, dims: ChannelNormDims, value: (x: V128) => V128): F32 {
  const sum = w.variable(float(0))
  forPlanes(w, span, dims, (plane) => {
    const x = w.int(w.at('x', i32.mul(plane, dims.plane)))
    const [part] = sumRow(w, dims.plane, [(e) => value(v128.load(elementOf(x, e)))])
    if (part) w.set(sum, f32.add(sum, part))
  })
  return sum
}

function shapeOf({ channels, plane, groupChannels, eps }: ChannelNormDims) {
  return { channels, plane, groupChannels, eps: { f32: eps } }
}

function affine(w: PieceWriter, channel: I32): { readonly weight: V128; readonly bias: V128 } {
  return {
    weight: w.variable(v128.loadSplat(w.at('weight', channel))),
    bias: w.variable(v128.loadSplat(w.at('bias', channel))),
  }
}

function forward(span: NormSpan, dims: ChannelNormDims, capacity: number): WasmRecipe {
  const { channels, plane: size, eps } = dims
  const kept = statistics(span, dims, capacity)
  return onePass(`${NAMES[span]}.forward`, {
    constants: shapeOf(dims),
    bindings: [
      matrix('x', 'read', capacity * channels, size),
      matrix('weight', 'read', 1, channels),
      matrix('bias', 'read', 1, channels),
      matrix('y', 'write', capacity * channels, size),
      matrix('mean', 'write', kept, 1),
      matrix('inverse', 'write', kept, 1),
    ],
    pieces: (samples) => statistics(span, dims, samples),
    write(w) {
      const count = countOf(w, span, dims)
      const mean = w.variable(
        f32.div(
          total(w, span, dims, (x) => x),
          count,
        ),
      )
      const middle = w.variable(v128.splat(mean))
      const squares = total(w, span, dims, (x) => {
        const value = w.variable(sub(x, middle))
        return mul(value, value)
      })
      const inverse = w.variable(f32.div(float(1), f32.sqrt(f32.add(f32.div(squares, count), float(eps)))))
      w.store(w.at('mean', w.piece), mean)
      w.store(w.at('inverse', w.piece), inverse)
      const scale = w.variable(v128.splat(inverse))
      forPlanes(w, span, dims, (plane, channel) => {
        const { weight, bias } = affine(w, channel)
        const [x, y] = [w.int(w.at('x', i32.mul(plane, size))), w.int(w.at('y', i32.mul(plane, size)))]
        fillRow(w, size, y, (e) => add(mul(mul(sub(v128.load(elementOf(x, e)), middle), scale), weight), bias))
      })
    },
  })
}

// dx = inverse · (g − average of g − x̂ · average of g·x̂) with g = weight · dy;  dweight += Σ dy · x̂;  dbias += Σ dy.
// First Σ dy and Σ dy · x̂ of each plane, which all three are made of.
function backward(span: NormSpan, dims: ChannelNormDims, capacity: number, hasInputGradient: boolean): WasmRecipe {
  const { channels, plane: size } = dims
  const kept = statistics(span, dims, capacity)
  const name = `${NAMES[span]}.backward` as const
  const sums = matrix('sums', 'write', capacity * channels, 2)
  const images = [matrix('x', 'read', capacity * channels, size), matrix('dy', 'read', capacity * channels, size)]
  const saved = [matrix('mean', 'read', kept, 1), matrix('inverse', 'read', kept, 1)]
  const constants = shapeOf(dims)
  return {
    scratch: { sums: 2 * capacity * channels + 8 },
    passes: [
      wasmPass(`${name} sums`, {
        constants,
        bindings: [...images, ...saved, sums],
        pieces: (samples) => piecesOf(samples * channels, PLANES),
        write: (w) => planeSums(w, span, dims),
      }),
      wasmPass(`${name} parameters`, {
        constants,
        bindings: [
          { ...sums, access: 'read' },
          matrix('dweight', 'update', 1, channels),
          matrix('dbias', 'update', 1, channels),
        ],
        pieces: () => piecesOf(channels, CHANNELS),
        write: (w) => parameterGradients(w, dims),
      }),
      ...(hasInputGradient
        ? [
            wasmPass(name, {
              constants,
              bindings: [
                ...images,
                matrix('weight', 'read', 1, channels),
                ...saved,
                { ...sums, access: 'read' as const },
                matrix('dx', 'write', capacity * channels, size),
              ],
              pieces: (samples) => statistics(span, dims, samples),
              write: (w) => inputGradient(w, span, dims),
            }),
          ]
        : []),
    ],
  }
}

/** Number of the statistic that a plane belongs to. */
function statisticOf(span: NormSpan, { channels, groupChannels }: ChannelNormDims, plane: I32): I32 {
  return span === 'batch' ? i32.remUnsigned(plane, channels) : i32.divUnsigned(plane, groupChannels)
}

interface Normalized {
  readonly dy: (e: I32) => V128
  /** x̂ */
  readonly x: (e: I32) => V128
}

function normalizedPlane(w: PieceWriter, dims: ChannelNormDims, plane: I32, statistic: I32): Normalized {
  const [x, dy] = [w.int(w.at('x', i32.mul(plane, dims.plane))), w.int(w.at('dy', i32.mul(plane, dims.plane)))]
  const middle = w.variable(v128.loadSplat(w.at('mean', statistic)))
  const scale = w.variable(v128.loadSplat(w.at('inverse', statistic)))
  return {
    dy: (e) => v128.load(elementOf(dy, e)),
    x: (e) => mul(sub(v128.load(elementOf(x, e)), middle), scale),
  }
}

function planeSums(w: PieceWriter, span: NormSpan, dims: ChannelNormDims): void {
  const { start, end } = partOf(w, w.piece, i32.mul(w.samples, dims.channels), PLANES)
  w.for(start, end, 1, (plane) => {
    const values = normalizedPlane(w, dims, plane, w.int(statisticOf(span, dims, plane)))
    const [plain, sloped] = sumRow(w, dims.plane, [values.dy, (e) => mul(values.dy(e), values.x(e))])
    const place = w.int(w.at('sums', i32.mul(plane, 2)))
    if (plain) w.store(place, plain)
    if (sloped) w.store(place, sloped, 4)
  })
}

function parameterGradients(w: PieceWriter, { channels }: ChannelNormDims): void {
  const { start, end } = partOf(w, w.piece, channels, CHANNELS)
  w.for(start, end, 1, (channel) => {
    const [plain, sloped] = [w.variable(float(0)), w.variable(float(0))]
    w.for(0, w.samples, 1, (sample) => {
      const place = w.int(w.at('sums', i32.mul(i32.add(i32.mul(sample, channels), channel), 2)))
      w.set(plain, f32.add(plain, f32.load(place)))
      w.set(sloped, f32.add(sloped, f32.load(place, 4)))
    })
    w.addFloat(w.int(w.at('dweight', channel)), sloped)
    w.addFloat(w.int(w.at('dbias', channel)), plain)
  })
}

function inputGradient(w: PieceWriter, span: NormSpan, dims: ChannelNormDims): void {
  const [shift, slope] = [w.variable(float(0)), w.variable(float(0))]
  forPlanes(w, span, dims, (plane, channel) => {
    const place = w.int(w.at('sums', i32.mul(plane, 2)))
    const weight = w.variable(f32.load(w.at('weight', channel)))
    w.set(shift, f32.add(shift, f32.mul(weight, f32.load(place))))
    w.set(slope, f32.add(slope, f32.mul(weight, f32.load(place, 4))))
  })
  const count = countOf(w, span, dims)
  const average = (sum: F32): V128 => w.variable(v128.splat(f32.div(sum, count)))
  const [shifts, slopes] = [average(shift), average(slope)]
  const inverse = w.variable(v128.loadSplat(w.at('inverse', w.piece)))
  forPlanes(w, span, dims, (plane, channel) => {
    const values = normalizedPlane(w, dims, plane, w.piece)
    const weight = w.variable(v128.loadSplat(w.at('weight', channel)))
    fillRow(w, dims.plane, w.int(w.at('dx', i32.mul(plane, dims.plane))), (e) =>
      mul(inverse, sub(sub(mul(weight, values.dy(e)), shifts), mul(values.x(e), slopes))),
    )
  })
}

export function channelNormForward(span: NormSpan): WasmKernel<'batchnorm2d.forward' | 'groupnorm.forward'> {
  return (dims, capacity) => forward(span, dims, capacity)
}

export function channelNormBackward(span: NormSpan): WasmKernel<'batchnorm2d.backward' | 'groupnorm.backward'> {
  return (dims, capacity, operands) => backward(span, dims, capacity, operands.dx !== undefined)
}

export const batchnorm2dEvaluate: WasmKernel<'batchnorm2d.evaluate'> = (dims, capacity) => {
  const { channels, plane: size, eps } = dims
  return onePass('batchnorm2d.evaluate', {
    constants: shapeOf(dims),
    bindings: [
      matrix('x', 'read', capacity * channels, size),
      ...['weight', 'bias', 'mean', 'variance'].map((name) => matrix(name, 'read', 1, channels)),
      matrix('y', 'write', capacity * channels, size),
    ],
    pieces: (samples) => piecesOf(samples * channels, PLANES),
    write(w) {
      const { start, end } = partOf(w, w.piece, i32.mul(w.samples, channels), PLANES)
      w.for(start, end, 1, (plane) => {
        const channel = w.int(i32.remUnsigned(plane, channels))
        const { weight, bias } = affine(w, channel)
        const middle = w.variable(v128.loadSplat(w.at('mean', channel)))
        const root = w.variable(v128.splat(f32.sqrt(f32.add(f32.load(w.at('variance', channel)), float(eps)))))
        const [x, y] = [w.int(w.at('x', i32.mul(plane, size))), w.int(w.at('y', i32.mul(plane, size)))]
        fillRow(w, size, y, (e) => add(mul(v128.div(sub(v128.load(elementOf(x, e)), middle), root), weight), bias))
      })
    },
  })
}

// dmean, dvariance (channels,) += samples · targets · what was measured; the variance is the unbiased one
export const batchnorm2dStatistics: WasmKernel<'batchnorm2d.statistics'> = ({ channels, plane, eps, targets }) =>
  onePass('batchnorm2d.statistics', {
    constants: { channels, plane, eps: { f32: eps }, targets },
    bindings: [
      matrix('mean', 'read', channels, 1),
      matrix('inverse', 'read', channels, 1),
      matrix('dmean', 'update', 1, channels),
      matrix('dvariance', 'update', 1, channels),
    ],
    pieces: () => 1,
    write: (w) =>
      w.for(0, channels, 1, (channel) => {
        const weight = w.variable(f32.ofInt(i32.mul(w.samples, targets)))
        const inverse = w.variable(f32.load(w.at('inverse', channel)))
        const biased = f32.max(f32.sub(f32.div(float(1), f32.mul(inverse, inverse)), float(eps)), float(0))
        const elements = w.int(i32.mul(w.samples, plane))
        const unbiased = f32.div(
          f32.mul(f32.mul(weight, biased), f32.ofInt(elements)),
          f32.ofInt(i32.max(i32.sub(elements, 1), 1)),
        )
        w.addFloat(w.int(w.at('dmean', channel)), f32.mul(weight, f32.load(w.at('mean', channel))))
        w.addFloat(w.int(w.at('dvariance', channel)), unbiased)
      }),
  })
