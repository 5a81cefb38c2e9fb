// The seam to where frozen parameters come from: shards of a coordinator, or the folder of a published model.

/** The frozen parameters of a model, one at a time: together they may be larger than what a tab can spare. */
export interface FrozenSource {
  /** (…shape) of the tensor of this name, as f32. @throws GridError 'dataset-unreadable' where there is none */
  read(name: string): Promise<Float32Array>
}
