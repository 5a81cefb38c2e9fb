// Text → number, as Number() gives it, four times as fast for what tables are full of: a few digits and a point.
// Source: Clinger (1990): digits below 2⁵³ divided by a power of ten up to 10²², both exact, round once.

export const MOST_DIGITS = 15
const ZERO = 0x30
const NINE = 0x39
const POINT = 0x2e
const MINUS = 0x2d
export const POWERS = Array.from({ length: MOST_DIGITS + 1 }, (_, i) => 10 ** i)

/** NaN for what is no finite number; blanks, too. */
export function decimal(text: string): number {
  const isNegative = text.charCodeAt(0) === MINUS
  const begin = isNegative ? 1 : 0
  let [digits, point] = [0, -1]
  let whole = 0
  for (let i = begin; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (code >= ZERO && code <= NINE) {
      whole = whole * 10 + (code - ZERO)
      digits++
    } else if (code === POINT && point < 0) point = i
    else return slowly(text)
  }
  if (digits === 0 || digits > MOST_DIGITS) return slowly(text)
  const value = point < 0 ? whole : whole / (POWERS[text.length - 1 - point] ?? 1)
  return isNegative ? -value : value
}

function slowly(text: string): number {
  const value = Number(text)
  if (value === 0 && text.trim() === '') return Number.NaN // blanks are 0 to JavaScript
  return value - value === 0 ? value : Number.NaN
}
