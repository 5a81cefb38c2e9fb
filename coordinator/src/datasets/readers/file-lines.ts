// Whole lines of text files from any byte on: what runs of CSV and JSON lines are cut of.
import { type FileHandle, open } from 'node:fs/promises'
import { datasetUnreadable } from '../samples.ts'
import { RUN_BYTES } from './reader.ts'

/** Bytes of one line or row: more is no table. */
const MAX_LINE_BYTES = 16 * 2 ** 20
const NEWLINE = 0x0a

export interface LineBytes {
  readonly bytes: Buffer
  /** it holds the end of the file */
  readonly isLast: boolean
}

export class LineFile {
  readonly path: string
  readonly #file: FileHandle
  readonly #size: number

  static async open(path: string): Promise<LineFile> {
    const file = await open(path).catch((cause: unknown) => {
      throw datasetUnreadable(path, 'cannot be opened', 'Name a file that can be read.', cause)
    })
    return new LineFile(path, file, (await file.stat()).size)
  }

  private constructor(path: string, file: FileHandle, size: number) {
    this.path = path
    this.#file = file
    this.#size = size
  }

  /**
   * About RUN_BYTES from a byte on, up to the end of a line; `runs` times as many where a row is longer than that.
   * @throws GridError 'dataset-unreadable' naming a line that does not end
   */
  async from(offset: number, runs = 1): Promise<LineBytes> {
    const wanted = RUN_BYTES * runs
    if (wanted > MAX_LINE_BYTES)
      throw datasetUnreadable(
        `${this.path}, byte ${offset}`,
        `expected a row of at most ${MAX_LINE_BYTES} bytes, got a longer one`,
        'Is it a table of text? A quotation mark may be missing.',
      )
    const buffer = Buffer.allocUnsafe(Math.min(wanted, Math.max(0, this.#size - offset)))
    const { bytesRead } = await this.#file.read(buffer, 0, buffer.byteLength, offset)
    const bytes = buffer.subarray(0, bytesRead)
    if (offset + bytesRead >= this.#size || bytesRead === 0) return { bytes, isLast: true }
    const end = bytes.lastIndexOf(NEWLINE)
    return end < 0 ? this.from(offset, runs * 2) : { bytes: bytes.subarray(0, end + 1), isLast: false }
  }

  close(): Promise<void> {
    return this.#file.close()
  }
}

/** @throws GridError 'dataset-unreadable' naming the file */
export function utf8(bytes: Buffer, path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch (cause) {
    throw datasetUnreadable(path, 'is not text in UTF-8', 'Convert it, or name another format with --format.', cause)
  }
}
