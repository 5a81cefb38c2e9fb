// The layout of runs of floats in the buffers of the encoding kernels: the table that encode.wgsl reads, and the
// offsets of each run's bytes. Pure.

import { ENCODE_BLOCK, ENCODE_TABLE_WORDS } from '@starling-grid/shaders'
import type { AdapterEncoding } from '../graph/executor.ts'

/** Encoded bytes of one run, in the words that are read back. */
export interface EncodedRun {
  readonly byteOffset: number
  readonly bytes: number
}

export interface EncodingCut {
  readonly table: Uint32Array<ArrayBuffer>
  readonly runs: readonly EncodedRun[]
  readonly floats: number
  readonly blocks: number
  readonly words: number
}

const WORD_BYTES = 4
/** codes in a word */
const PER_WORD = { int8: 4, f16: 2 } as const

/**
 * `lengths`: floats of each run; runs lie one after the other. Each begins at a whole word: scales first, then codes.
 */
export function encodingCut(encoding: AdapterEncoding, lengths: readonly number[]): EncodingCut {
  const rows: number[] = []
  const runs: EncodedRun[] = []
  let [floats, words] = [0, 0]
  for (const length of lengths) {
    const first = rows.length / ENCODE_TABLE_WORDS
    const blocks = Math.ceil(length / ENCODE_BLOCK)
    const scales = encoding === 'int8' ? blocks : 1
    for (let block = 0; block < blocks; block++) {
      const at = block * ENCODE_BLOCK
      const codes = words + scales + at / PER_WORD[encoding]
      rows.push(
        floats + at,
        Math.min(ENCODE_BLOCK, length - at),
        codes,
        words + (encoding === 'int8' ? block : 0),
        first,
        block === 0 ? blocks : 0,
        0,
        0,
      )
    }
    const bytes = WORD_BYTES * scales + (WORD_BYTES / PER_WORD[encoding]) * length
    runs.push({ byteOffset: WORD_BYTES * words, bytes })
    floats += length
    words += Math.ceil(bytes / WORD_BYTES)
  }
  return { table: Uint32Array.from(rows), runs, floats, blocks: rows.length / ENCODE_TABLE_WORDS, words }
}
