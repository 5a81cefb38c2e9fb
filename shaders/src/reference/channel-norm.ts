// Plain batch norm and group norm: x̂ = (x − mean) · inverse, y = x̂ · weight + bias. x (B, C, plane), weight, bias
// (C,). A statistic covers one channel in all samples, or neighbouring channels of one sample.

import type { ChannelNormDims, KernelOperands, StatisticsDims } from '../kernels.ts'

type Floats = Float32Array
type BatchNormForward = KernelOperands<'batchnorm2d.forward', Floats>
type BatchNormBackward = KernelOperands<'batchnorm2d.backward', Floats>
/** The planes of one statistic: (sample · C + channel) each. */
type Statistic = readonly number[]

export function batchnorm2dForward(dims: ChannelNormDims, samples: number, operands: BatchNormForward): void {
  forward(dims, ofBatch(dims, samples), operands)
}

export function groupnormForward(dims: ChannelNormDims, samples: number, operands: BatchNormForward): void {
  forward(dims, ofSamples(dims, samples), operands)
}

export function batchnorm2dBackward(dims: ChannelNormDims, samples: number, operands: BatchNormBackward): void {
  backward(dims, ofBatch(dims, samples), operands)
}

export function groupnormBackward(dims: ChannelNormDims, samples: number, operands: BatchNormBackward): void {
  backward(dims, ofSamples(dims, samples), operands)
}

export function batchnorm2dEvaluate(
  { channels, plane, eps }: ChannelNormDims,
  samples: number,
  operands: KernelOperands<'batchnorm2d.evaluate', Floats>,
): void {
  const { x, weight, bias, mean, variance, y } = operands
  for (let i = 0; i < samples * channels * plane; i++) {
    const channel = Math.floor(i / plane) % channels
    y[i] =
      (((x[i] ?? 0) - (mean[channel] ?? 0)) / Math.sqrt((variance[channel] ?? 0) + eps)) * (weight[channel] ?? 0) +
      (bias[channel] ?? 0)
  }
}

/** The unbiased variance, as PyTorch keeps it; that of one element is 0. */
export function batchnorm2dStatistics(
  { channels, plane, eps, targets }: StatisticsDims,
  samples: number,
  operands: KernelOperands<'batchnorm2d.statistics', Floats>,
): void {
  const { mean, inverse, dmean, dvariance } = operands
  const elements = samples * plane
  for (let c = 0; c < channels; c++) {
    const biased = Math.max(1 / (inverse[c] ?? 0) ** 2 - eps, 0)
    dmean[c] = (dmean[c] ?? 0) + samples * targets * (mean[c] ?? 0)
    dvariance[c] = (dvariance[c] ?? 0) + (samples * targets * biased * elements) / Math.max(elements - 1, 1)
  }
}

function ofBatch({ channels }: ChannelNormDims, samples: number): Statistic[] {
  return Array.from({ length: channels }, (_, channel) =>
    Array.from({ length: samples }, (__, sample) => sample * channels + channel),
  )
}

function ofSamples({ channels, groupChannels }: ChannelNormDims, samples: number): Statistic[] {
  return Array.from({ length: (samples * channels) / groupChannels }, (_, group) =>
    Array.from({ length: groupChannels }, (__, channel) => group * groupChannels + channel),
  )
}

function forward(
  dims: ChannelNormDims,
  statistics: readonly Statistic[],
  { x, weight, bias, y, mean, inverse }: BatchNormForward,
): void {
  for (const [s, planes] of statistics.entries()) {
    const middle = average(dims, planes, (i) => x[i] ?? 0)
    const scale = 1 / Math.sqrt(average(dims, planes, (i) => ((x[i] ?? 0) - middle) ** 2) + dims.eps)
    mean[s] = middle
    inverse[s] = scale
    forEachElement(dims, planes, (i, channel) => {
      y[i] = ((x[i] ?? 0) - middle) * scale * (weight[channel] ?? 0) + (bias[channel] ?? 0)
    })
  }
}

// dx = inverse · (g − average of g − x̂ · average of g·x̂) with g = weight · dy;  dweight += Σ dy · x̂;  dbias += Σ dy
function backward(
  dims: ChannelNormDims,
  statistics: readonly Statistic[],
  { x, weight, dy, mean, inverse, dx, dweight, dbias }: BatchNormBackward,
): void {
  for (const [s, planes] of statistics.entries()) {
    const scale = inverse[s] ?? 0
    const normalized = (i: number) => ((x[i] ?? 0) - (mean[s] ?? 0)) * scale
    const g = (i: number, channel: number) => (weight[channel] ?? 0) * (dy[i] ?? 0)
    for (const plane of planes) addPlane(dims, plane, { dy, normalized, dweight, dbias })
    if (!dx) continue
    const shift = average(dims, planes, g)
    const slope = average(dims, planes, (i, channel) => g(i, channel) * normalized(i))
    forEachElement(dims, planes, (i, channel) => {
      dx[i] = scale * (g(i, channel) - shift - normalized(i) * slope)
    })
  }
}

type PlaneGradient = Pick<BatchNormBackward, 'dy' | 'dweight' | 'dbias'> & { normalized(i: number): number }

function addPlane(
  { channels, plane: size }: ChannelNormDims,
  plane: number,
  { dy, normalized, dweight, dbias }: PlaneGradient,
): void {
  let [weightSum, biasSum] = [0, 0]
  for (let i = plane * size; i < (plane + 1) * size; i++) {
    weightSum += (dy[i] ?? 0) * normalized(i)
    biasSum += dy[i] ?? 0
  }
  const channel = plane % channels
  dweight[channel] = (dweight[channel] ?? 0) + weightSum
  dbias[channel] = (dbias[channel] ?? 0) + biasSum
}

function forEachElement(
  { channels, plane: size }: ChannelNormDims,
  planes: Statistic,
  visit: (i: number, channel: number) => void,
): void {
  for (const plane of planes) for (let i = plane * size; i < (plane + 1) * size; i++) visit(i, plane % channels)
}

function average(dims: ChannelNormDims, planes: Statistic, value: (i: number, channel: number) => number): number {
  let sum = 0
  forEachElement(dims, planes, (i, channel) => {
    sum += value(i, channel)
  })
  return sum / (planes.length * dims.plane)
}
