// Which metrics a validation of a model has: they follow from its loss and the shape of its output.
import { MAX_TALLY_COLUMNS, type Metric, METRICS_OF_TARGETS, type Tally, TOP } from '@starling-grid/protocol'
import { lastSize, type Shape } from '@starling-grid/shaders'
import { outputShape } from './param-layout.ts'
import type { Loss, ModelSpec } from './spec.ts'

/**
 * What members count of a block beside the loss (protocol/src/tally.ts); undefined: nothing that is worth a message.
 */
export function tallyKind({ loss, label_smoothing: smoothing }: ModelSpec, output: Shape): Tally['of'] | undefined {
  if (loss === 'bce_with_logits') return 'labels'
  if (loss === 'mse') return output.reduce((a, b) => a * b, 1) <= MAX_TALLY_COLUMNS ? 'values' : undefined
  if (output.length === 1) return lastSize(output) > TOP ? 'classes' : undefined
  return smoothing === undefined ? 'tokens' : undefined // the loss of smoothed targets is no surprise of the text
}

/** What may judge a version of the model. */
export function metricsOfModel(spec: ModelSpec): readonly Metric[] {
  return metricsOf(spec.loss, tallyKind(spec, outputShape(spec)))
}

/** … and of an imported language model. */
export const METRICS_OF_TEXT = metricsOf('cross_entropy', 'tokens')

function metricsOf(loss: Loss, kind: Tally['of'] | undefined): readonly Metric[] {
  const always: readonly Metric[] = loss === 'mse' ? ['loss'] : ['loss', 'accuracy']
  return [...new Set([...always, ...(kind === undefined ? [] : METRICS_OF_TARGETS[kind])])]
}
