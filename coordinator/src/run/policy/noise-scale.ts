// How many volunteers are of use at once: the gradient noise scale B = tr Σ / |G|² (McCandlish et al., "An Empirical
// Model of Large-Batch Training", 2018), from norms that the parameter server measures anyway. Contributions of one
// version differ by chance alone, so their norms beside the norm of their mean say how much of each is chance. Pure.

/** One push in a version: samples that it learned from, norm of its mean, and what it was multiplied by. */
export interface Contribution {
  readonly samples: number
  readonly norm: number
  readonly factor: number
}

/** Moving averages of both, each by itself: their quotient in one version is mostly chance. */
export interface NoiseEstimate {
  readonly versions: number
  /** |G|² */
  readonly signal: number
  /** tr Σ, of one sample */
  readonly noise: number
}

export const NO_ESTIMATE: NoiseEstimate = { versions: 0, signal: 0, noise: 0 }

/** Weight of the newest version: noise grows over a training, and a version says little. */
const NEWEST_WEIGHT = 0.1
/** Versions before the averages say anything. */
const ENOUGH_VERSIONS = 10
/** Of the variance of one contribution, that the mean of all has less: below it the two norms are nearly one. */
const LEAST_SPREAD = 0.2
/** Times as many versions that fewer volunteers may need and still count as just as fast. */
const AS_FAST = 1.1

/**
 * With the contributions of one version and the norm of their mean. Of one contribution E|gᵢ|² = |G|² + tr Σ/bᵢ, and of
 * Σ fᵢbᵢgᵢ/B it is a²|G|² + c·tr Σ: two equations. Unchanged where these are too much alike.
 */
export function withVersion(
  before: NoiseEstimate,
  contributions: readonly Contribution[],
  meanNorm: number,
): NoiseEstimate {
  const all = contributions.reduce((sum, { samples }) => sum + samples, 0)
  if (all === 0 || contributions.some(({ samples }) => samples === 0)) return before
  const mean = (of: (one: Contribution) => number): number =>
    contributions.reduce((sum, one) => sum + of(one), 0) / contributions.length
  const count = contributions.length
  const a = (count * mean(({ factor, samples }) => factor * samples)) / all
  const c = (count * mean(({ factor, samples }) => factor ** 2 * samples)) / all ** 2
  const each = mean(({ samples }) => 1 / samples)
  const determinant = a ** 2 * each - c
  if (!(determinant > LEAST_SPREAD * a ** 2 * each)) return before
  const [small, large] = [mean(({ norm }) => norm ** 2), meanNorm ** 2]
  const found = { noise: (a ** 2 * small - large) / determinant, signal: (each * large - c * small) / determinant }
  return mixed(before, found)
}

/** A mean of all while they are few. */
function mixed(before: NoiseEstimate, found: Omit<NoiseEstimate, 'versions'>): NoiseEstimate {
  const versions = before.versions + 1
  const weight = Math.max(NEWEST_WEIGHT, 1 / versions)
  const mix = (old: number, now: number): number => old + weight * (now - old)
  return { versions, signal: mix(before.signal, found.signal), noise: mix(before.noise, found.noise) }
}

/**
 * Samples of a version above which more of them save few versions; undefined: too little is known. Infinity: all that
 * is seen is chance, and more samples help as much as more versions.
 */
export function noiseScale({ versions, signal, noise }: NoiseEstimate): number | undefined {
  if (versions < ENOUGH_VERSIONS) return undefined
  return signal <= 0 ? Number.POSITIVE_INFINITY : Math.max(0, noise) / signal
}

/** Versions to the same quality with so many volunteers, of those with endlessly many (1 + B/batch). */
export function versionsNeeded(critical: number, volunteers: number): number {
  return 1 + critical / Math.max(1, volunteers)
}

/**
 * The fewest volunteers that train about as fast as all. `critical`: volunteers whose contributions make up the noise
 * scale.
 */
export function enoughVolunteers(critical: number, volunteers: number): number {
  if (!Number.isFinite(critical)) return volunteers
  const bearable = AS_FAST * versionsNeeded(critical, volunteers)
  return Math.min(volunteers, Math.max(1, Math.ceil(critical / Math.max(bearable - 1, 1e-9))))
}
