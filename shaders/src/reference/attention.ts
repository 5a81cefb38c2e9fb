// Plain attention. qkv (B, T, 3, H, D) → probabilities (B, H, T, T) = softmax(q · kᵀ/√D), y (B, T, H, D) =
// probabilities · v. The flash kernels compute the same and keep ln Σ exp(scores) instead of the probabilities.

import type { AttentionDims, KernelOperands } from '../kernels.ts'

type AttentionOperands<
  K extends 'attention.forward' | 'attention.backward' | 'flash_attention.forward' | 'flash_attention.backward',
> = KernelOperands<K, Float32Array>

export function attentionForward(
  dims: AttentionDims,
  samples: number,
  { qkv, probabilities, y }: AttentionOperands<'attention.forward'>,
): void {
  for (const head of headsOf(dims, samples))
    for (let t = 0; t < dims.length; t++) {
      const p = attend(dims, head, qkv, t).probabilities
      probabilities.set(p, (head.index * dims.length + t) * dims.length)
      mix(head, qkv, p, head.mixed(y, t))
    }
}

export function attentionBackward(
  dims: AttentionDims,
  samples: number,
  { qkv, probabilities, dy, dqkv }: AttentionOperands<'attention.backward'>,
): void {
  const kept = (head: Head, t: number) => {
    const start = (head.index * dims.length + t) * dims.length
    return probabilities.subarray(start, start + dims.length)
  }
  backward(dims, samples, { qkv, dy, dqkv }, kept)
}

export function flashAttentionForward(
  dims: AttentionDims,
  samples: number,
  { qkv, y, logSums }: AttentionOperands<'flash_attention.forward'>,
): void {
  for (const head of headsOf(dims, samples))
    for (let t = 0; t < dims.length; t++) {
      const { probabilities, logSum } = attend(dims, head, qkv, t)
      logSums[head.index * dims.length + t] = logSum
      mix(head, qkv, probabilities, head.mixed(y, t))
    }
}

export function flashAttentionBackward(
  dims: AttentionDims,
  samples: number,
  { qkv, dy, dqkv }: AttentionOperands<'flash_attention.backward'>,
): void {
  backward(dims, samples, { qkv, dy, dqkv }, (head, t) => attend(dims, head, qkv, t).probabilities)
}

/** One head of one sample: where its rows of D numbers lie. */
interface Head {
  /** sample · heads + head */
  readonly index: number
  row(qkv: Float32Array, part: 0 | 1 | 2, t: number): Float32Array
  mixed(y: Float32Array, t: number): Float32Array
}

function headsOf({ length, heads, headSize }: AttentionDims, samples: number): Head[] {
  return Array.from({ length: samples * heads }, (_, index) => {
    const first = Math.floor(index / heads) * length
    const head = index % heads
    const rowOf = (of: Float32Array, row: number) => of.subarray(row * headSize, (row + 1) * headSize)
    return {
      index,
      row: (qkv, part, t) => rowOf(qkv, (first + t) * 3 * heads + part * heads + head),
      mixed: (y, t) => rowOf(y, (first + t) * heads + head),
    }
  })
}

function attend(
  { length, headSize, causal }: AttentionDims,
  head: Head,
  qkv: Float32Array,
  t: number,
): { probabilities: Float32Array; logSum: number } {
  const query = head.row(qkv, 0, t)
  const seen = causal ? t + 1 : length
  const scores = Array.from({ length: seen }, (_, k) => dot(query, head.row(qkv, 1, k)) / Math.sqrt(headSize))
  const top = scores.reduce((greatest, score) => Math.max(greatest, score), -Infinity)
  const sum = scores.reduce((total, score) => total + Math.exp(score - top), 0)
  const probabilities = new Float32Array(length)
  for (const [k, score] of scores.entries()) probabilities[k] = Math.exp(score - top) / sum
  return { probabilities, logSum: top + Math.log(sum) }
}

function mix(head: Head, qkv: Float32Array, probabilities: Float32Array, y: Float32Array): void {
  y.fill(0)
  for (const [k, probability] of probabilities.entries()) addScaled(y, head.row(qkv, 2, k), probability)
}

interface Gradients {
  readonly qkv: Float32Array
  readonly dy: Float32Array
  readonly dqkv: Float32Array
}

// dv = pᵀ dy;  ds = p (dp − Σ p dp)/√D with dp = dy · vᵀ;  dq = ds · k;  dk = dsᵀ q
function backward(
  dims: AttentionDims,
  samples: number,
  { qkv, dy, dqkv }: Gradients,
  probabilitiesOf: (head: Head, t: number) => Float32Array,
): void {
  const { length, heads, headSize } = dims
  dqkv.fill(0, 0, samples * length * 3 * heads * headSize)
  for (const head of headsOf(dims, samples))
    for (let t = 0; t < length; t++) {
      const p = probabilitiesOf(head, t)
      const upstream = head.mixed(dy, t)
      const dp = Float32Array.from(p, (_, k) => dot(upstream, head.row(qkv, 2, k)))
      const mean = dot(p, dp)
      for (let k = 0; k < length; k++) {
        const probability = p[k] ?? 0
        const ds = (probability * ((dp[k] ?? 0) - mean)) / Math.sqrt(headSize)
        addScaled(head.row(dqkv, 2, k), upstream, probability)
        addScaled(head.row(dqkv, 0, t), head.row(qkv, 1, k), ds)
        addScaled(head.row(dqkv, 1, k), head.row(qkv, 0, t), ds)
      }
    }
}

function dot(a: Float32Array, b: Float32Array): number {
  let sum = 0
  for (let i = 0; i < a.length; i++) sum += (a[i] ?? 0) * (b[i] ?? 0)
  return sum
}

function addScaled(to: Float32Array, from: Float32Array, factor: number): void {
  for (let i = 0; i < to.length; i++) to[i] = (to[i] ?? 0) + (from[i] ?? 0) * factor
}
