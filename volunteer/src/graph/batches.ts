// A batch checked against its graph and cut into the micro-batches that fit a runner.

import { GridError } from '@starling-grid/protocol'
import type { Graph } from './build.ts'
import type { Batch } from './executor.ts'
import { LOSSES } from './losses.ts'

/** Throws when the batch does not fit the model; a wrong class index would otherwise read another sample's memory. */
export function checkBatch(graph: Graph, batch: Batch): void {
  checkInput(graph, batch.x, batch.samples)
  const target = graph.lossTensors?.target
  if (!target) throw new Error('internal: the graph has no loss')
  if (batch.y.length !== batch.samples * target.size)
    throw new Error(`internal: ${batch.samples} samples need ${batch.samples * target.size} targets and have ${batch.y.length}`)
  const classes = LOSSES[graph.spec.loss].target === 'classes' ? graph.output.shape.at(-1) : undefined
  if (classes !== undefined) checkClasses(batch.y, classes)
  else if (!(batch.y instanceof Float32Array)) throw new Error('internal: targets of mse must be floats')
}

export function checkInput(graph: Graph, x: Batch['x'], samples: number): void {
  if (x.length !== samples * graph.input.size)
    throw new Error(`internal: ${samples} samples need ${samples * graph.input.size} inputs and have ${x.length}`)
  if (!(x instanceof Float32Array)) throw new Error('internal: the model takes floats, not token ids')
}

function checkClasses(y: Batch['y'], classes: number): void {
  if (!(y instanceof Int32Array)) throw new Error('internal: class targets must be integers')
  const wrong = y.findIndex(label => label < 0 || label >= classes)
  if (wrong >= 0) throw new GridError('dataset-unreadable', `target ${wrong} is class ${y[wrong]}; the model has classes 0 to ${classes - 1}`)
}

/** Ranges of at most `capacity` samples, as even as can be: 65 samples at 64 become 32 and 33. */
export function microBatches(samples: number, capacity: number): { start: number; count: number }[] {
  const pieces = Math.ceil(samples / capacity)
  return Array.from({ length: pieces }, (_, i) => {
    const start = Math.floor((samples * i) / pieces)
    return { start, count: Math.floor((samples * (i + 1)) / pieces) - start }
  })
}
