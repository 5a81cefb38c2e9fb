// The arrays of an .npz file: a ZIP of .npy files, read by yauzl one after another or beside each other.
import { crc32 } from 'node:zlib'
import { describeError } from '@starling-grid/protocol'
import yauzl from 'yauzl'
import { datasetUnreadable } from '../samples.ts'

/** Arrays of one file. */
const MAX_ENTRIES = 10_000
const ENDING = '.npy'
const CURE = 'Save it again with numpy.savez or numpy.savez_compressed.'

export class NpzFile {
  readonly path: string
  readonly #zip: yauzl.ZipFile
  readonly #entries: ReadonlyMap<string, yauzl.Entry>

  /** @throws GridError 'dataset-unreadable' */
  static async open(path: string): Promise<NpzFile> {
    try {
      const zip = await yauzl.openPromise(path, { autoClose: false })
      if (zip.entryCount > MAX_ENTRIES) throw new Error(`it has ${zip.entryCount} arrays, the limit is ${MAX_ENTRIES}`)
      const entries = new Map<string, yauzl.Entry>()
      for await (const entry of zip.eachEntry())
        if (entry.fileName.endsWith(ENDING)) entries.set(entry.fileName.slice(0, -ENDING.length), entry)
      return new NpzFile(path, zip, entries)
    } catch (cause) {
      throw datasetUnreadable(path, `is no .npz file that can be read (${describeError(cause)})`, CURE, cause)
    }
  }

  private constructor(path: string, zip: yauzl.ZipFile, entries: ReadonlyMap<string, yauzl.Entry>) {
    this.path = path
    this.#zip = zip
    this.#entries = entries
  }

  get names(): readonly string[] {
    return [...this.#entries.keys()]
  }

  /** Unpacked bytes of an array, with its header, as the file says it. */
  bytesOf(name: string): number | undefined {
    return this.#entries.get(name)?.uncompressedSize
  }

  /** @throws GridError 'dataset-unreadable' where it cannot be unpacked, or its checksum is another */
  async *chunks(name: string): AsyncIterable<Uint8Array> {
    const entry = this.#entries.get(name)
    if (entry === undefined) throw new Error(`internal: no array ${name} in ${this.path}`)
    let sum = 0
    try {
      const stream = await this.#zip.openReadStreamPromise(entry)
      for await (const chunk of stream as AsyncIterable<Buffer>) {
        sum = crc32(chunk, sum)
        yield chunk
      }
    } catch (cause) {
      throw datasetUnreadable(
        `${this.path}, array ${name}`,
        `cannot be unpacked (${describeError(cause)})`,
        CURE,
        cause,
      )
    }
    if (sum !== entry.crc32) throw datasetUnreadable(`${this.path}, array ${name}`, 'has another checksum', CURE)
  }

  close(): void {
    this.#zip.close()
  }
}
