// How long something is good for, as people write it on a command line: 90m, 12h, 30d.
import { InvalidArgumentError } from 'commander'

const UNIT_MS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 }

/** A parser for commander: "30d" → ms */
export function durationIn(text: string): number {
  const [, count = '', unit = ''] = /^([1-9]\d{0,4})([mhd])$/.exec(text.trim()) ?? []
  const factor = UNIT_MS[unit]
  if (factor === undefined) throw new InvalidArgumentError('expected minutes, hours or days such as 90m, 12h or 30d')
  return Number(count) * factor
}

/** "2026-11-23 18:04", in UTC; null: `otherwise` */
export function momentText(at: number | null, otherwise: string): string {
  return at === null ? otherwise : new Date(at).toISOString().slice(0, 16).replace('T', ' ')
}
