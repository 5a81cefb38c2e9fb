// Numbers as people read them. A value that is not a finite number is shown as such.

const NOT_A_NUMBER = 'not a number'
const MINUTE_S = 60
const HOUR_S = 60 * MINUTE_S
const DAY_S = 24 * HOUR_S
const BYTE_UNITS = ['B', 'kB', 'MB', 'GB', 'TB']

/** 12345 → "12,345" */
export function count(value: number): string {
  return Number.isFinite(value) ? Math.round(value).toLocaleString('en') : NOT_A_NUMBER
}

/** bytes → "1.2 MB" (powers of 1000) */
export function bytes(value: number): string {
  if (!Number.isFinite(value)) return NOT_A_NUMBER
  let unit = 0
  let scaled = value
  while (scaled >= 1000 && unit < BYTE_UNITS.length - 1) {
    scaled /= 1000
    unit++
  }
  return `${unit === 0 || scaled >= 100 ? Math.round(scaled) : scaled.toFixed(1)} ${BYTE_UNITS[unit] ?? ''}`
}

/** samples per second → "412", "8.3" */
export function rate(value: number): string {
  if (!Number.isFinite(value)) return NOT_A_NUMBER
  return value > 0 && value < 10 ? value.toFixed(1) : count(value)
}

/** a loss → "2.303", "0.0412", "3.1e-7" */
export function loss(value: number | null): string {
  if (value === null) return 'none yet'
  if (!Number.isFinite(value)) return NOT_A_NUMBER
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1)
  return value
    .toPrecision(4)
    .replace(/(\.\d*?)0+$/, '$1')
    .replace(/\.$/, '')
}

/** a share → "97.3 %" */
export function percent(fraction: number): string {
  return Number.isFinite(fraction) ? `${(100 * fraction).toFixed(1)} %` : NOT_A_NUMBER
}

/** seconds → "3 min 20 s" */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return NOT_A_NUMBER
  const whole = Math.max(0, Math.round(seconds))
  if (whole < MINUTE_S) return `${whole} s`
  if (whole < HOUR_S) return pair(whole, MINUTE_S, 'min', 's')
  if (whole < DAY_S) return pair(Math.round(whole / MINUTE_S), MINUTE_S, 'h', 'min')
  return pair(Math.round(whole / HOUR_S), 24, 'd', 'h')
}

function pair(value: number, per: number, big: string, small: string): string {
  const rest = value % per
  return rest === 0 ? `${Math.floor(value / per)} ${big}` : `${Math.floor(value / per)} ${big} ${rest} ${small}`
}

/** ms since the epoch → "14:03:09" */
export function clockTime(at: number): string {
  return new Date(at).toLocaleTimeString('en-GB')
}

/** a hash → its first characters: enough to compare by eye */
export function shortHash(id: string): string {
  return id.slice(0, 8)
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`
}
