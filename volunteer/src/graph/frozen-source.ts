// The seam to where frozen parameters come from: shards of a coordinator, or the folder of a published model.
import type { PackedStorage } from '@starling-grid/shaders'

/** The frozen parameters of a model, one at a time: together they may be larger than what a tab can spare. */
export interface FrozenSource {
  /** (…shape) of the tensor of this name, as f32. @throws GridError 'dataset-unreadable' where there is none */
  read(name: string): Promise<Float32Array>
  /** its matrices in fewer bytes; absent: they are stored as f32 */
  readonly packed?: PackedSource | undefined
}

export interface PackedSource {
  readonly storage: PackedStorage
  /** (rows, words of a row) of the matrix of this name. @throws GridError 'shard-corrupt' */
  read(name: string): Promise<Int32Array>
}
