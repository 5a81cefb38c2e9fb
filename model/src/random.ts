// A counter-based generator: word i of stream s under a seed is a pure function of (seed, s, i).
// Integer arithmetic only, so that every machine draws the same words, in any order.

const LOW_32_BITS = 2 ** 32

/** Uniform 32-bit words of one stream. `seed` is any safe integer ≥ 0. */
export function randomWords(seed: number, stream: number): (counter: number) => number {
  if (!Number.isSafeInteger(seed) || seed < 0) throw new Error(`internal: seed ${seed} is not a safe integer ≥ 0`)
  const low = scramble(seed % LOW_32_BITS)
  const high = scramble(Math.floor(seed / LOW_32_BITS) ^ low)
  const key = scramble(stream ^ high)
  return (counter) => scramble(scramble(counter ^ key) + low)
}

/**
 * A bijection of 32-bit words in which each input bit flips about half of the output bits (xor-shift and odd
 * multipliers).
 */
function scramble(word: number): number {
  let x = word | 0
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad)
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97)
  return (x ^ (x >>> 15)) >>> 0
}
