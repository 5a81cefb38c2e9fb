// Vectors whose sums are known, and what cases of communicator-suite.ts require of results. Knows no test runner.
import { checksum } from '@starling-grid/protocol'
import type { Movable } from '@starling-grid/protocol/floats'
import { bytesOf } from '../src/codec/numbers.ts'
import type { Communicator } from '../src/collectives/communicator.ts'

/** Of all sizes and signs, with places that only some ranks fill. */
export function valuesOf(rank: number, length: number): Float32Array {
  const values = new Float32Array(length)
  for (let i = 0; i < length; i++)
    values[i] =
      i % 5 === rank % 5 ? 0 : (Math.imul(i + 77 * rank + 1, 0x9e3779b1) / 2 ** 31) * (SCALES[i % SCALES.length] ?? 1)
  return values
}

const SCALES = [0.001, 0.01, 0.1, 1, 10, 100, 1000]

/** In double precision; `first`: the rank that rank 0 stands for. */
export function expectedSum(
  size: number,
  length: number,
  first = 0,
): { readonly sum: Float64Array; readonly magnitude: Float64Array } {
  const [sum, magnitude] = [new Float64Array(length), new Float64Array(length)]
  for (let rank = 0; rank < size; rank++) {
    const values = valuesOf(rank + first, length)
    for (let i = 0; i < length; i++) {
      sum[i] = (sum[i] ?? 0) + (values[i] ?? 0)
      magnitude[i] = (magnitude[i] ?? 0) + Math.abs(values[i] ?? 0)
    }
  }
  return { sum, magnitude }
}

/** Each of `roundings` f32 additions may be off by 2⁻²⁴ of what is added. */
export function requireNear(
  got: Float32Array,
  { sum, magnitude }: ReturnType<typeof expectedSum>,
  roundings: number,
  what: string,
): void {
  check(got.length === sum.length, `${what}: ${got.length} numbers`)
  const slack = roundings * 2 ** -24
  const at = got.findIndex((value, i) => !(Math.abs(value - (sum[i] ?? 0)) <= slack * (magnitude[i] ?? 0)))
  check(at < 0, `${what}: number ${at} is ${got[at]}, expected ${sum[at]}`)
}

export function requireSame(got: Movable, expected: Movable, what: string): void {
  check(got.length === expected.length, `${what}: ${got.length} numbers, expected ${expected.length}`)
  const at = got.findIndex((value, i) => value !== expected[i])
  check(at < 0, `${what}: number ${at} is ${got[at]}, expected ${expected[at]}`)
}

export async function requireEqualBytes(group: Communicator, values: Movable, what: string): Promise<void> {
  const digests = await group.allGather(Int32Array.of(checksum(bytesOf(values)) | 0))
  check(
    digests.every((digest) => digest === digests[0]),
    `${what}: ranks hold different bytes (${digests.join()})`,
  )
}

export async function requireRejection(promise: Promise<unknown>, code: string | undefined): Promise<unknown> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  check((error as { code?: string } | undefined)?.code === code, `expected ${code}, got ${String(error)}`)
  return error
}

export function check(condition: boolean, message: string): asserts condition {
  if (!condition) throw new Error(message)
}
