// The walk that both poolings share: each window of each channel, as the input cells that it covers.

import type { Pool2dDims } from '../kernels.ts'
import { cellsInside } from './window.ts'

/** One window: index of its output, and the input cells rows × columns of the plane at `plane`. */
export interface Window {
  readonly output: number
  readonly plane: number
  readonly rows: { first: number; end: number }
  readonly columns: { first: number; end: number }
}

export function forEachWindow(dims: Pool2dDims, samples: number, visit: (window: Window) => void): void {
  const { kernel, stride, padding, outHeight, outWidth } = dims
  for (let channel = 0; channel < samples * dims.channels; channel++)
    for (let line = 0; line < outHeight; line++) {
      const rows = cellsInside(line, kernel, { size: dims.height, outSize: outHeight, stride, padding })
      for (let column = 0; column < outWidth; column++) {
        const columns = cellsInside(column, kernel, { size: dims.width, outSize: outWidth, stride, padding })
        visit({
          output: (channel * outHeight + line) * outWidth + column,
          plane: channel * dims.height * dims.width,
          rows,
          columns,
        })
      }
    }
}
