// What was appended to the datasets of running jobs (`starling dataset import --append`), found by looking at the
// catalog: the command may run beside any process. Decides nothing.
import type { DatasetManifest, ShardRef } from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import type { Catalog } from '../datasets/catalog.ts'
import { takeShards } from '../datasets/named.ts'
import type { RunHost } from '../host/run-host.ts'

/** ms between looks: a look costs one `stat` for each dataset of an open job */
export const LOOK_FOR_DATA_MS = 2000

export class AppendedData {
  readonly #catalog: Catalog
  readonly #blobs: BlobStore
  /** when the dataset of a run was written, as it was looked at last */
  readonly #seen = new WeakMap<RunHost, number>()

  constructor(catalog: Catalog, blobs: BlobStore) {
    this.#catalog = catalog
    this.#blobs = blobs
  }

  /** Those whose dataset was written since the last look; a restart looks at all once. */
  async changed(runs: readonly RunHost[]): Promise<RunHost[]> {
    const changed: RunHost[] = []
    for (const run of runs) {
      const name = datasetOf(run)
      const at = run.finished || name === undefined ? undefined : await this.#catalog.writtenAt(name)
      if (at !== undefined && at !== this.#seen.get(run)) changed.push(run)
    }
    return changed
  }

  /** Shards of the dataset behind those that the run has; they are among the blobs before the run is told. */
  async take(run: RunHost): Promise<void> {
    const name = datasetOf(run)
    if (name === undefined) return
    const at = await this.#catalog.writtenAt(name)
    const dataset = await this.#catalog.find(name)
    if (at === undefined || dataset === undefined) return
    const shards = behind(run.job.manifest, dataset.train)
    if (shards.length > 0) {
      await takeShards(dataset, await this.#catalog.blobs(), this.#blobs)
      run.feed({ type: 'dataset-appended', before: run.job.manifest.train.length, shards })
    }
    this.#seen.set(run, at)
  }
}

function datasetOf({ job }: RunHost): string | undefined {
  return 'name' in job.spec.dataset ? job.spec.dataset.name : undefined
}

/** None where the dataset is another one under the same name: it was deleted and imported again. */
function behind({ train }: DatasetManifest, all: readonly ShardRef[]): readonly ShardRef[] {
  const isSame = train.every(({ sha256, samples }, i) => all[i]?.sha256 === sha256 && all[i]?.samples === samples)
  return isSame ? all.slice(train.length) : []
}
