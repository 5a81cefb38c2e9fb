// Keeps what a software adapter compiled. Dawn compiles equal pipelines once while one of them is alive. JavaScript's
// collector ends those of an executor that is gone, and the next executor on the device would compile them again.

/** Of the pipelines made last: those of a few large models. */
const MOST_KEPT = 1000

/** From now on the device's latest pipelines live, until the returned function is called. */
export function keepPipelines(device: GPUDevice): () => void {
  const create = device.createComputePipelineAsync.bind(device)
  const kept: GPUComputePipeline[] = []
  device.createComputePipelineAsync = async (descriptor) => {
    const pipeline = await create(descriptor)
    kept.push(pipeline)
    if (kept.length > MOST_KEPT) kept.shift()
    return pipeline
  }
  return () => void kept.splice(0)
}
