// What an import has done so far: written whole after each window of samples, so that a killed import goes on there.
import { createHash } from 'node:crypto'
import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { ShardRef } from '@starling-grid/protocol'
import { writeWhole } from '../named-imports.ts'
import { BEGINNING, type SplitPart, type ReadPlace } from './readers/reader.ts'
import type { StoredMoments } from './statistics.ts'

export interface ImportState {
  /** of the options and of the files' sizes and times: another key is another import */
  readonly key: string
  readonly part: SplitPart
  readonly place: ReadPlace
  /** that were written */
  readonly windows: number
  /** training and validation samples */
  readonly samples: readonly [number, number]
  readonly dropped: number
  /** source bytes read */
  readonly bytes: number
  readonly train: readonly ShardRef[]
  readonly validation: readonly ShardRef[]
  readonly moments?: StoredMoments
  readonly counts: readonly number[]
  /** what the reader learned */
  readonly reader?: unknown
}

export function beginningOf(key: string): ImportState {
  return {
    key,
    part: 'train',
    place: BEGINNING,
    windows: 0,
    samples: [0, 0],
    dropped: 0,
    bytes: 0,
    train: [],
    validation: [],
    counts: [],
  }
}

export class ImportFile {
  readonly #path: string

  constructor(folder: string, name: string) {
    this.#path = join(folder, `${name}.importing`)
  }

  /** The state of an import with this key; what another left is forgotten. */
  async read(key: string, beginning = beginningOf(key)): Promise<ImportState> {
    const text = await readFile(this.#path, 'utf8').catch(() => undefined)
    if (text === undefined) return beginning
    const state = JSON.parse(text) as ImportState
    return state.key === key ? state : beginning
  }

  /** @throws GridError 'disk-failed' */
  write(state: ImportState): Promise<void> {
    return writeWhole(this.#path, JSON.stringify(state))
  }

  remove(): Promise<void> {
    return rm(this.#path, { force: true })
  }
}

export function keyOf(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('hex')
}
