// Sizes as people write them on a command line: 500MB, 4GB, 1.5 GB.
import { GridError } from '@starling-grid/protocol'

const UNITS: Readonly<Record<string, number>> = { '': 1, b: 1, kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12 }

/** @throws GridError 'usage' */
export function bytesIn(text: string): number {
  const [, number = '', unit = ''] = /^(\d+(?:\.\d+)?)\s*([kmgt]?b)?$/i.exec(text.trim()) ?? []
  const factor = UNITS[unit.toLowerCase()]
  if (number === '' || factor === undefined)
    throw new GridError('usage', `expected a size such as 500MB or 4GB, got "${text}"`)
  return Math.round(Number(number) * factor)
}

const SHOWN = ['B', 'kB', 'MB', 'GB', 'TB']

/** 1234567 → "1.2 MB" */
export function bytesText(bytes: number): string {
  const power = Math.min(SHOWN.length - 1, bytes < 1 ? 0 : Math.floor(Math.log10(bytes) / 3))
  return `${(bytes / 1000 ** power).toFixed(power === 0 ? 0 : 1)} ${SHOWN[power]}`
}
