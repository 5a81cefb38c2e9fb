// The imported datasets of a simulated data folder: production's catalog as its readers see it, in memory. An owner
// appends to a dataset while jobs train on it (`starling dataset import --append`).
import { type BlobStore, Catalog, memoryBlobs } from '@starling-grid/coordinator/shell'
import type { DatasetManifest, Sha256 } from '@starling-grid/protocol'

type FoundDataset = Awaited<ReturnType<Catalog['find']>>
type Shelved = NonNullable<FoundDataset>

export class DatasetShelf extends Catalog {
  readonly #kept = new Map<Sha256, Uint8Array>()
  readonly #blobs = memoryBlobs(this.#kept)
  readonly #datasets = new Map<string, Shelved>()
  /** by name: how often it was written, in place of a time */
  readonly #written = new Map<string, number>()

  constructor() {
    super('.')
  }

  /** The dataset of a job, and its shards; later with more of them. */
  write(name: string, { train, validation }: DatasetManifest, shards: ReadonlyMap<Sha256, Uint8Array>): void {
    for (const [sha256, bytes] of shards) this.#kept.set(sha256, bytes)
    this.#datasets.set(name, { ...DESCRIBED, name, train, validation })
    this.#written.set(name, (this.#written.get(name) ?? 0) + 1)
  }

  override async blobs(): Promise<BlobStore> {
    return this.#blobs
  }

  override async writtenAt(name: string): Promise<number | undefined> {
    return this.#written.get(name)
  }

  override async find(name: string): Promise<FoundDataset> {
    return this.#datasets.get(name)
  }
}

/** What runs do not ask for. */
const DESCRIBED: Omit<Shelved, 'name' | 'train' | 'validation'> = {
  format: 'made up',
  importedAt: '',
  inputs: { shape: [2], inputType: 'U8', inputScale: 1 },
  targets: { kind: 'classes', size: 2 },
  dropped: 0,
  sources: [],
}
