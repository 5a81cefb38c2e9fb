// Encodings that many ask for, made once and kept as files beside the data: the newest of each slot. A start begins
// without any.
import { randomBytes } from 'node:crypto'
import { mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describeError, GridError } from '@starling-grid/protocol'
import { type Stored, storedInFile } from './blobs/stored.ts'

/** What is kept for the group and others: nothing. */
const OWN_FILE = 0o600
const OWN_FOLDER = 0o700

interface Kept {
  /** what was encoded */
  readonly tag: string
  readonly path: string
  readonly stored: Stored
}

export class KeptFiles {
  readonly #folder: string
  readonly #kept = new Map<string, Kept>()
  /** what is being made, by slot and tag: those who ask meanwhile wait for it */
  readonly #making = new Map<string, Promise<Stored>>()

  /** @throws GridError 'folder-unwritable' */
  static async open(folder: string): Promise<KeptFiles> {
    try {
      await mkdir(folder, { recursive: true, mode: OWN_FOLDER })
      for (const name of await readdir(folder)) await rm(join(folder, name), { force: true })
    } catch (cause) {
      throw new GridError(
        'folder-unwritable',
        `The folder ${folder} cannot be written: ${describeError(cause)}. Name another with --data-dir.`,
        { cause },
      )
    }
    return new KeptFiles(folder)
  }

  private constructor(folder: string) {
    this.#folder = folder
  }

  /** What is kept of this tag, without making it. */
  peek(slot: string, tag: string): Stored | undefined {
    const kept = this.#kept.get(slot)
    return kept?.tag === tag ? kept.stored : undefined
  }

  /**
   * The encoding of this tag; made when it is not kept, and then the slot's older one goes. @throws GridError
   * 'disk-failed', and what `make` throws
   */
  async file(slot: string, tag: string, make: () => Promise<Uint8Array>): Promise<Stored> {
    const known = this.peek(slot, tag)
    if (known !== undefined) return known
    const name = `${slot} ${tag}`
    const making = this.#making.get(name) ?? this.#make(slot, tag, make)
    this.#making.set(name, making)
    try {
      return await making
    } finally {
      this.#making.delete(name)
    }
  }

  async #make(slot: string, tag: string, make: () => Promise<Uint8Array>): Promise<Stored> {
    const bytes = await make()
    const path = join(this.#folder, randomBytes(16).toString('hex'))
    try {
      await writeFile(path, bytes, { mode: OWN_FILE, flag: 'wx' })
    } catch (cause) {
      await rm(path, { force: true }).catch(() => undefined)
      throw new GridError(
        'disk-failed',
        `Could not write ${bytes.byteLength} bytes to ${this.#folder}: ${describeError(cause)}. Check the space and health of the disk.`,
        { cause },
      )
    }
    const before = this.#kept.get(slot)
    const stored = storedInFile(path, bytes.byteLength)
    this.#kept.set(slot, { tag, path, stored })
    // Readers that have it open go on reading.
    if (before !== undefined) await rm(before.path, { force: true }).catch(() => undefined)
    return stored
  }
}
