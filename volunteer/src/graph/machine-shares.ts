// What each of several devices of one machine gets of a batch: in proportion to its speed, cut where a batch may be
// cut. Pure; knows nothing of devices.

/** A part of a batch, in samples. */
export interface SampleSlice {
  readonly start: number
  readonly count: number
}

export interface MachineShares {
  /** of each device, above 0; together 1 */
  readonly weights: readonly number[]
  /** why, for people */
  readonly reason: string
}

/** Part of a step's time that other shares must save: each change makes the next sum round otherwise. */
const LEAST_GAIN = 0.1

/** `speeds`: samples/s of each device; undefined: not measured yet. The same object: nothing changes. */
export function decideShares(now: MachineShares | undefined, speeds: readonly (number | undefined)[]): MachineShares {
  const known = speeds.filter((speed) => speed !== undefined)
  const mean = known.reduce((sum, speed) => sum + speed, 0) / Math.max(known.length, 1)
  if (known.length === 0) return now ?? { weights: speeds.map(() => 1 / speeds.length), reason: 'none is measured yet' }
  const filled = speeds.map((speed) => speed ?? mean)
  const total = filled.reduce((sum, speed) => sum + speed, 0)
  const gain = now === undefined ? 1 : 1 - 1 / (total * stepTime(now.weights, filled))
  if (now !== undefined && gain < LEAST_GAIN) return now
  const measured = `measured ${filled.map((speed) => speed.toPrecision(3)).join(' and ')} samples/s`
  return {
    weights: filled.map((speed) => speed / total),
    reason: now === undefined ? measured : `${measured}: a step takes ${Math.round(100 * gain)} % less`,
  }
}

/** s for each sample of a batch: of the device that is ready last */
function stepTime(weights: readonly number[], speeds: readonly number[]): number {
  return Math.max(...weights.map((weight, i) => weight / (speeds[i] ?? 1)))
}

/**
 * One slice for each weight, in order, together all samples. `units`: samples that stay together, in order. No slice is
 * empty where there are as many units as weights; where there are fewer, the largest weights get one each.
 */
export function cutByShares(units: readonly number[], weights: readonly number[]): SampleSlice[] {
  const counts = units.length < weights.length ? oneEach(units.length, weights) : unitsOfEach(units, weights)
  let [unit, start] = [0, 0]
  return counts.map((count) => {
    const samples = units.slice(unit, unit + count).reduce((sum, size) => sum + size, 0)
    unit += count
    start += samples
    return { start: start - samples, count: samples }
  })
}

function oneEach(units: number, weights: readonly number[]): number[] {
  const largest = weights.map((_, i) => i).sort((a, b) => (weights[b] ?? 0) - (weights[a] ?? 0))
  const chosen = new Set(largest.slice(0, units))
  return weights.map((_, i) => (chosen.has(i) ? 1 : 0))
}

/** Each ends at the unit that is nearest to where its share ends, and leaves one for each behind it. */
function unitsOfEach(units: readonly number[], weights: readonly number[]): number[] {
  const samples = units.reduce((sum, size) => sum + size, 0)
  let [unit, taken, wanted] = [0, 0, 0]
  return weights.map((weight, i) => {
    wanted += weight * samples
    const first = unit
    const last = units.length - (weights.length - 1 - i)
    while (unit < last && (unit === first || i === weights.length - 1 || taken + (units[unit] ?? 0) / 2 <= wanted)) {
      taken += units[unit] ?? 0
      unit++
    }
    return unit - first
  })
}
