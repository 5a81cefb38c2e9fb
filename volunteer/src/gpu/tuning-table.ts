// What was measured, as it lies in the host's cache: shape of a call → its fastest variant. Whatever is odd about an
// entry makes it worthless, never harmful: an unknown variant is not chosen.

export interface MeasuredVariant {
  /** `register 8×8` */
  readonly variant: string
  readonly ms: number
  /** of the second-best; absent when nothing else was tried */
  readonly nextMs?: number
  /** others that were as good, when all were measured here; absent: the time was over before, or it was taken over */
  readonly asGood?: readonly string[]
  /** so many volunteers with this class of adapter named it, and it passed the check here */
  readonly takenFrom?: number
}

export type TuningTable = ReadonlyMap<string, MeasuredVariant>

/** More than any model has shapes; a larger file is not ours. */
const MOST_BYTES = 1 << 20

/** undefined when the bytes hold no table. */
export function parseTable(bytes: Uint8Array): Map<string, MeasuredVariant> | undefined {
  if (bytes.length > MOST_BYTES) return undefined
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
    const entries = Object.entries(value)
    return entries.every((entry): entry is [string, MeasuredVariant] => isMeasured(entry[1]))
      ? new Map(entries)
      : undefined
  } catch {
    // Not JSON: as worthless as any other damage.
    return undefined
  }
}

function isMeasured(value: unknown): value is MeasuredVariant {
  if (typeof value !== 'object' || value === null || !('variant' in value) || !('ms' in value)) return false
  const { nextMs, takenFrom, asGood = [] }: Partial<Record<keyof MeasuredVariant, unknown>> = value
  return (
    typeof value.variant === 'string' &&
    typeof value.ms === 'number' &&
    [nextMs, takenFrom].every((number) => number === undefined || typeof number === 'number') &&
    Array.isArray(asGood) &&
    asGood.every((name) => typeof name === 'string')
  )
}
