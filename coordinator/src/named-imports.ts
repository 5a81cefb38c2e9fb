// What was imported under a name: one JSON file each in a folder of the data folder, beside the blobs that hold its
// shards. Independent of what is imported; datasets/catalog.ts and models/model-catalog.ts say it.
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { describeError, type ErrorCode, GridError, type Sha256 } from '@starling-grid/protocol'
import type { BlobStore } from './blobs/blob-store.ts'
import { openFolderBlobs } from './blobs/folder.ts'

const NAME = /^[a-z0-9][a-z0-9._-]{0,59}$/
/** characters of a wrong name that an error repeats */
const SHOWN_NAME = 80
const ENDING = '.json'
const OWN_FOLDER = 0o700
const OWN_FILE = 0o600

/** What sets one kind of import apart. */
export interface NamedKind<T> {
  /** `dataset`: for people */
  readonly what: string
  /** below the data folder */
  readonly folder: string
  /** of one that is missing or damaged */
  readonly code: ErrorCode
  /** the command that imports one of this name */
  importCommand(name: string): string
  /** blobs that it needs */
  blobsOf(imported: T): readonly Sha256[]
}

export class NamedImports<T extends { readonly name: string }> {
  readonly folder: string
  readonly dataDir: string
  readonly #kind: NamedKind<T>
  #blobs: Promise<BlobStore> | undefined

  constructor(dataDir: string, kind: NamedKind<T>) {
    this.dataDir = dataDir
    this.folder = join(dataDir, kind.folder)
    this.#kind = kind
  }

  /** Where shards lie: the coordinator's own blobs when it uses the same data folder. */
  blobs(): Promise<BlobStore> {
    this.#blobs ??= openFolderBlobs(join(this.dataDir, 'blobs'))
    return this.#blobs
  }

  /** Sorted. */
  async names(): Promise<string[]> {
    const files = await readdir(this.folder).catch(() => [])
    return files
      .filter((file) => file.endsWith(ENDING))
      .map((file) => file.slice(0, -ENDING.length))
      .filter((name) => NAME.test(name))
      .sort()
  }

  /** @throws GridError with the code of its kind when there is none, or its file is damaged */
  async get(name: string): Promise<T> {
    const found = await this.find(name)
    if (found !== undefined) return found
    const { what, code, importCommand } = this.#kind
    throw new GridError(
      code,
      `expected the name of an imported ${what}, got ${JSON.stringify(name.slice(0, SHOWN_NAME))} ` +
        `(known: ${(await this.names()).join(', ') || 'none'}); ` +
        `import it with: ${importCommand(NAME.test(name) ? name : 'NAME')}`,
    )
  }

  /** ms since the epoch at which its file was written; undefined: there is none */
  async writtenAt(name: string): Promise<number | undefined> {
    if (!NAME.test(name)) return undefined
    return (await stat(this.#pathOf(name)).catch(() => undefined))?.mtimeMs
  }

  async find(name: string): Promise<T | undefined> {
    if (!NAME.test(name)) return undefined
    const path = this.#pathOf(name)
    const text = await readFile(path, 'utf8').catch(() => undefined)
    if (text === undefined) return undefined
    try {
      return JSON.parse(text) as T
    } catch (cause) {
      const { what, code } = this.#kind
      throw new GridError(
        code,
        `expected a ${what} in ${path}, got: ${describeError(cause)}; delete the ${what} and import it again`,
        { cause },
      )
    }
  }

  /** Durable when it resolves. @throws GridError 'usage' for a bad name, 'disk-failed' */
  async put(imported: T): Promise<void> {
    requireImportName(imported.name)
    await writeWhole(this.#pathOf(imported.name), JSON.stringify(imported))
  }

  /** Blobs that no other import of the kind has are removed, but those that `isUsed` keeps. */
  async delete(name: string, isUsed: (blob: Sha256) => boolean): Promise<T> {
    const imported = await this.get(name)
    const others = await this.#blobsOfAll((other) => other !== name)
    await rm(this.#pathOf(name), { force: true })
    const blobs = await this.blobs()
    for (const blob of this.#kind.blobsOf(imported)) if (!others.has(blob) && !isUsed(blob)) await blobs.delete(blob)
    return imported
  }

  /** What every import of the kind needs. */
  blobNames(): Promise<ReadonlySet<Sha256>> {
    return this.#blobsOfAll(() => true)
  }

  async #blobsOfAll(counts: (name: string) => boolean): Promise<ReadonlySet<Sha256>> {
    const names = (await this.names()).filter(counts)
    return new Set((await Promise.all(names.map((name) => this.get(name)))).flatMap(this.#kind.blobsOf))
  }

  #pathOf(name: string): string {
    return join(this.folder, `${name}${ENDING}`)
  }
}

/** @throws GridError 'usage' */
export function requireImportName(name: string): void {
  if (NAME.test(name)) return
  throw new GridError(
    'usage',
    'expected a name of at most 60 small letters, digits, dots, dashes and underscores that begins with a letter or ' +
      `digit, got ${JSON.stringify(name.slice(0, SHOWN_NAME))}; choose another`,
  )
}

/** Whole or not at all, and durable when it resolves. @throws GridError 'disk-failed' */
export async function writeWhole(path: string, text: string): Promise<void> {
  const aside = `${path}.${process.pid}.unfinished`
  try {
    await mkdir(join(path, '..'), { recursive: true, mode: OWN_FOLDER })
    const file = await open(aside, 'w', OWN_FILE)
    try {
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(aside, path)
  } catch (cause) {
    await rm(aside, { force: true }).catch(() => undefined)
    throw new GridError(
      'disk-failed',
      `expected to write ${path}, got: ${describeError(cause)}; check the space and health of the disk`,
      { cause },
    )
  }
}
