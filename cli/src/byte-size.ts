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
