// Encodings that many ask for, made once and kept as files beside the data: the newest of each slot. A start begins
// without any.
import { randomBytes } from 'node:crypto'
import { mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describeError, GridError } from '@starling-grid/protocol'
import { type Stored, storedInFile, storedInMemory } from '../blobs/stored.ts'

/** What is kept for the group and others: nothing. */
const OWN_FILE = 0o600
const OWN_FOLDER = 0o700

/** Where encodings lie. */
interface Shelf {
  /** @throws GridError 'disk-failed' */
  put(bytes: Uint8Array): Promise<PlacedFile>
}

interface PlacedFile {
  readonly stored: Stored
  /** Readers that have it open go on reading. */
  remove(): Promise<void>
}

interface KeptFile extends PlacedFile {
  /** what was encoded */
  readonly tag: string
}

export class KeptFiles {
  readonly #shelf: Shelf
  readonly #kept = new Map<string, KeptFile>()
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
        `expected a folder that can be written, got ${folder} (${describeError(cause)}); name another with --data-dir`,
        { cause },
      )
    }
    return new KeptFiles({ put: (bytes) => writtenTo(folder, bytes) })
  }

  /** Without a disk. */
  static inMemory(): KeptFiles {
    return new KeptFiles({ put: async (bytes) => ({ stored: storedInMemory(bytes), remove: async () => undefined }) })
  }

  private constructor(shelf: Shelf) {
    this.#shelf = shelf
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
    const existing = this.peek(slot, tag)
    if (existing !== undefined) return existing
    const name = `${slot} ${tag}`
    const making = this.#making.get(name) ?? this.#make(slot, tag, make)
    this.#making.set(name, making)
    try {
      return await making
    } finally {
      this.#making.delete(name)
    }
  }

  /** What is kept of a slot goes; readers that have it open go on reading. */
  async drop(slot: string): Promise<void> {
    const kept = this.#kept.get(slot)
    this.#kept.delete(slot)
    await kept?.remove()
  }

  async #make(slot: string, tag: string, make: () => Promise<Uint8Array>): Promise<Stored> {
    const placed = await this.#shelf.put(await make())
    const before = this.#kept.get(slot)
    this.#kept.set(slot, { tag, ...placed })
    await before?.remove()
    return placed.stored
  }
}

async function writtenTo(folder: string, bytes: Uint8Array): Promise<PlacedFile> {
  const path = join(folder, randomBytes(16).toString('hex'))
  const remove = (): Promise<void> => rm(path, { force: true }).catch(() => undefined)
  try {
    await writeFile(path, bytes, { mode: OWN_FILE, flag: 'wx' })
  } catch (cause) {
    await remove()
    throw new GridError(
      'disk-failed',
      `expected to write ${bytes.byteLength} bytes to ${folder}, got: ${describeError(cause)}; ` +
        'check the space and health of the disk',
      { cause },
    )
  }
  return { stored: storedInFile(path, bytes.byteLength), remove }
}
