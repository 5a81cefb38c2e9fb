// The places of the k largest magnitudes of floats, without sorting. Bits of positive floats are in the order of the
// floats, so counts of their digits find the k-th.

const SIZE_MASK = 0x7fffffff
/** The 31 bits of a magnitude as three digits: how many bits each has, and how many are below it. */
const DIGITS = [
  { bits: 11, below: 20 },
  { bits: 10, below: 10 },
  { bits: 10, below: 0 },
] as const

/** Rising; of equal magnitudes the first. NaN counts as the largest, so that it is not hidden. */
export function placesOfLargest(values: Float32Array, k: number): Uint32Array {
  const places = new Uint32Array(k)
  const sizes = new Uint32Array(values.buffer, values.byteOffset, values.length)
  const { least, ties } = kthLargest(sizes, k)
  let found = 0
  let tiesLeft = ties
  for (let i = 0; i < sizes.length && found < k; i++) {
    const size = (sizes[i] ?? 0) & SIZE_MASK
    if (size < least || (size === least && tiesLeft-- <= 0)) continue
    places[found++] = i
  }
  return places
}

/** The k-th largest magnitude as bits, and how many numbers of exactly this magnitude are among the k. */
function kthLargest(sizes: Uint32Array, k: number): { readonly least: number; readonly ties: number } {
  let least = 0
  let left = k
  for (const { bits, below } of DIGITS) {
    const counts = countsOf(sizes, least >>> (below + bits), { bits, below })
    let digit = counts.length - 1
    while (digit > 0 && left > (counts[digit] ?? 0)) left -= counts[digit--] ?? 0
    least |= digit << below
  }
  return { least, ties: left }
}

/** How often each value of a digit comes, among magnitudes with these bits above it. */
function countsOf(sizes: Uint32Array, above: number, digit: { readonly bits: number; readonly below: number }) {
  const { bits, below } = digit
  const counts = new Uint32Array(1 << bits)
  const mask = counts.length - 1
  for (let i = 0; i < sizes.length; i++) {
    const size = (sizes[i] ?? 0) & SIZE_MASK
    if (size >>> (below + bits) !== above) continue
    const value = (size >>> below) & mask
    counts[value] = (counts[value] ?? 0) + 1
  }
  return counts
}
