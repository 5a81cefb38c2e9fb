import { leftFactors, multiplyOut, orthonormalize, outside, rightFactors } from '../codec/encode-power-sgd.ts'
import { addTopK, encodeTopK, topKCount } from '../codec/encode-top-k.ts'
// The all-reduces that send less than a code for every number: the largest ones only, or thin factors of matrices.
// Made of plain collectives, which they are given; all ranks end with equal bytes.
import { type PowerSgdEncoding, type TopKEncoding, withResidual } from '../codec/encoding.ts'

/** Each rank gets the k largest of every rank and adds them in the order of the ranks. `gather` is called at once. */
export async function topKAllReduce(
  values: Float32Array,
  { fraction, feedback }: TopKEncoding,
  gather: (bytes: Uint8Array) => Promise<Uint8Array>,
): Promise<Float32Array> {
  const k = topKCount(values.length, fraction)
  const { next } = feedback
  withResidual(values, feedback.residual, next)
  const own = encodeTopK(next, k)
  clearSent(own, next, k)
  const all = await gather(own)
  const sum = new Float32Array(values.length)
  for (let at = 0; at < all.byteLength; at += own.byteLength) addTopK(all.subarray(at, at + own.byteLength), sum, k)
  return sum
}

/** What travels does not stay behind, and neither does what is not finite. */
function clearSent(bytes: Uint8Array, residual: Float32Array, k: number): void {
  for (const place of new Uint32Array(bytes.buffer, bytes.byteOffset, k)) residual[place] = 0
  keepFinite(residual)
}

function keepFinite(residual: Float32Array): void {
  for (let i = 0; i < residual.length; i++) if ((residual[i] ?? 0) * 0 !== 0) residual[i] = 0
}

/**
 * The three sums that PowerSGD makes of its parts, in their place: what is in no matrix, left factors, right factors.
 */
export type PowerSgdStage = 'outside' | 'left' | 'right'

export async function powerSgdAllReduce(
  values: Float32Array,
  { shape, state, next }: PowerSgdEncoding,
  sum: (stage: PowerSgdStage, part: Float32Array) => Promise<Float32Array>,
): Promise<Float32Array> {
  const own = new Float32Array(values.length)
  withResidual(values, state.residual, own)
  const runs = outside(shape, values.length)
  const [rest, p] = await Promise.all([
    sum('outside', joined(own, runs)),
    sum('left', leftFactors(shape, own, state.q)),
  ])
  orthonormalize(shape, p)
  const ownQ = rightFactors(shape, own, p)
  const summing = sum('right', ownQ.slice())
  noteResidual(own, { shape, p, q: ownQ }, next.residual)
  const q = await summing
  next.q.set(q)
  const result = new Float32Array(values.length)
  multiplyOut(shape, { p, q }, result)
  spread(rest, runs, result)
  return result
}

/** own − P·Qᵀ where there are matrices, nothing elsewhere. */
function noteResidual(
  own: Float32Array,
  { shape, p, q }: Pick<PowerSgdEncoding, 'shape'> & { readonly p: Float32Array; readonly q: Float32Array },
  residual: Float32Array,
): void {
  residual.set(own)
  multiplyOut(shape, { p, q }, residual)
  for (let i = 0; i < residual.length; i++) residual[i] = (own[i] ?? 0) - (residual[i] ?? 0)
  keepFinite(residual)
}

type FloatRuns = readonly (readonly [first: number, end: number])[]

function joined(values: Float32Array, runs: FloatRuns): Float32Array {
  const parts = new Float32Array(runs.reduce((sum, [first, end]) => sum + end - first, 0))
  let at = 0
  for (const [first, end] of runs) {
    parts.set(values.subarray(first, end), at)
    at += end - first
  }
  return parts
}

function spread(parts: Float32Array, runs: FloatRuns, into: Float32Array): void {
  let at = 0
  for (const [first, end] of runs) {
    into.set(parts.subarray(at, at + end - first), first)
    at += end - first
  }
}
