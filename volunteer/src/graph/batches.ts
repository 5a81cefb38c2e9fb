// A batch checked against its graph and cut into the micro-batches that fit a runner.

import { layerShapes, type ModelSpec } from '@starling-grid/model'
import { GridError } from '@starling-grid/protocol'
import type { Graph } from './build.ts'
import type { Batch } from './executor.ts'
import { lossRule } from './losses.ts'
import { opOf } from './ops/table.ts'

/** Throws when the batch does not fit the model; a wrong class index would otherwise read another sample's memory. */
export function checkBatch(graph: Graph, batch: Batch): void {
  checkInput(graph, batch.x, batch.samples)
  const target = graph.lossTensors?.target
  if (!target) throw new Error('internal: the graph has no loss')
  if (batch.y.length !== batch.samples * target.size)
    throw new Error(
      `internal: ${batch.samples} samples need ${batch.samples * target.size} targets and have ${batch.y.length}`,
    )
  const classes = lossRule(graph.spec.loss).target === 'classes' ? graph.output.shape.at(-1) : undefined
  if (classes !== undefined) checkClasses(batch.y, classes, graph.spec.ignore_index)
  else if (!(batch.y instanceof Float32Array)) throw new Error(`internal: targets of ${graph.spec.loss} must be floats`)
}

/** How many targets the loss sums over: those that are not ignored. */
export function countTargets({ spec: { ignore_index: ignored } }: Graph, y: Batch['y']): number {
  if (ignored === undefined) return y.length
  let count = 0
  for (const label of y) if (label !== ignored) count++
  return count
}

export function checkInput(graph: Graph, x: Batch['x'], samples: number): void {
  if (x.length !== samples * graph.input.size)
    throw new Error(`internal: ${samples} samples need ${samples * graph.input.size} inputs and have ${x.length}`)
  if (graph.vocab !== undefined) return checkIds(x, graph.vocab)
  if (!(x instanceof Float32Array)) throw new Error('internal: the model takes floats, not token ids')
}

function checkIds(x: Batch['x'], vocab: number): void {
  if (!(x instanceof Int32Array)) throw new Error('internal: the model takes token ids, not floats')
  const wrong = x.findIndex((id) => id < 0 || id >= vocab)
  if (wrong >= 0)
    throw new GridError('dataset-unreadable', `expected tokens 0 to ${vocab - 1}, got ${x[wrong]} as input ${wrong}`)
}

function checkClasses(y: Batch['y'], classes: number, ignored: number | undefined): void {
  if (!(y instanceof Int32Array)) throw new Error('internal: class targets must be integers')
  const wrong = y.findIndex((label) => label !== ignored && (label < 0 || label >= classes))
  if (wrong >= 0)
    throw new GridError(
      'dataset-unreadable',
      `expected classes 0 to ${classes - 1}, got ${y[wrong]} as target ${wrong}`,
    )
}

/** Where a batch may be cut: anywhere, or between its groups where the samples of one influence each other. */
export function piecesOf(
  { mixesSamples, spec }: Graph,
  { samples, groups = [samples] }: Batch,
  capacity: number,
): { start: number; count: number }[] {
  if (!mixesSamples) return microBatches(samples, capacity)
  const largest = Math.max(0, ...groups)
  if (largest > capacity)
    throw new GridError(
      'adapter-limit',
      `expected room for blocks of ${largest} samples, over which ${spec.name} normalises, ` +
        `got ${capacity} on this adapter; submit the job with smaller blocks`,
    )
  let start = 0
  return groups.map((count) => {
    start += count
    return { start: start - count, count }
  })
}

/**
 * Samples that an executor takes at once beside its own choice: a model that normalises over a block needs the whole of
 * it.
 */
export function microBatchFor(spec: ModelSpec, blockSamples: number): { readonly maxMicroBatch?: number } {
  return mixesSamples(spec) ? { maxMicroBatch: blockSamples } : {}
}

/** Samples of one block influence each other: it normalises over them. */
export function mixesSamples(spec: ModelSpec): boolean {
  return layerShapes(spec).some(({ layer }) => opOf(layer.type).mixesSamples)
}

/** Ranges of at most `capacity` samples, as even as can be: 65 samples at 64 become 32 and 33. */
export function microBatches(samples: number, capacity: number): { start: number; count: number }[] {
  const pieces = Math.ceil(samples / capacity)
  return Array.from({ length: pieces }, (_, i) => {
    const start = Math.floor((samples * i) / pieces)
    return { start, count: Math.floor((samples * (i + 1)) / pieces) - start }
  })
}
