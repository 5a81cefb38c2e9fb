// ResNet for small colour images. Source: He et al., "Deep Residual Learning for Image Recognition" (2015), section
// 4.2. 6n + 2 layers: three stages of n blocks, each stage with half the edge and twice the channels of the one before.
// Where a block changes the shape its shortcut is a 1 × 1 convolution with batch norm (option B). Names as in
// torchvision.

import { invalid } from '../fields.ts'
import { parseModelSpec } from '../parse.ts'
import type { ModelSpec } from '../spec.ts'

/** Pixels are stored as bytes. */
const PIXEL_SCALE = 1 / 255
const STAGES = 3

export interface ResnetOptions {
  /** 6n + 2: 20, 32, 44, 56, 110 in the paper */
  readonly depth?: number
  readonly classes?: number
  /** of the first stage */
  readonly channels?: number
}

/**
 * x (3, 32, 32) → (classes,)
 * @throws GridError('model-invalid') when the depth is not 6n + 2
 * @example const start = initialParameters(resnet({ depth: 20 }), 42)
 */
export function resnet({ depth = 20, classes = 10, channels = 16 }: ResnetOptions = {}): ModelSpec {
  const blocks = (depth - 2) / 6
  if (!Number.isInteger(blocks) || blocks < 1)
    throw invalid('resnet', 'a depth of 6n + 2, such as 20, 32 or 56,', String(depth))
  const stages = Array.from({ length: STAGES }, (_, stage) => stageOf(stage, blocks, channels))
  return parseModelSpec({
    name: `resnet${depth}`,
    input: [3, 32, 32],
    layers: [
      ...convolution('conv1', 'bn1', { out: channels, kernel: 3, padding: 1 }),
      { type: 'relu' },
      ...stages.flat(),
      { type: 'globalavgpool' },
      { type: 'linear', name: 'fc', out: classes },
    ],
    loss: 'cross_entropy',
    inputScale: PIXEL_SCALE,
  })
}

function stageOf(stage: number, blocks: number, channels: number): object[] {
  const out = channels * 2 ** stage
  return Array.from({ length: blocks }, (_, block) =>
    blockOf(`layer${stage + 1}.${block}`, out, stage > 0 && block === 0),
  ).flat()
}

/** Two convolutions beside a shortcut; `halves`: the first of a stage with another shape. */
function blockOf(name: string, out: number, halves: boolean): object[] {
  const stride = halves ? 2 : 1
  const layers = [
    ...convolution(`${name}.conv1`, `${name}.bn1`, { out, kernel: 3, padding: 1, stride }),
    { type: 'relu' },
    ...convolution(`${name}.conv2`, `${name}.bn2`, { out, kernel: 3, padding: 1 }),
  ]
  const shortcut = halves
    ? { shortcut: convolution(`${name}.downsample.0`, `${name}.downsample.1`, { out, kernel: 1, stride }) }
    : {}
  return [{ type: 'residual', layers, ...shortcut }, { type: 'relu' }]
}

/** The norm has a shift: the convolution needs no bias. */
function convolution(
  name: string,
  norm: string,
  window: { readonly out: number; readonly kernel: number; readonly padding?: number; readonly stride?: number },
): object[] {
  return [
    { type: 'conv2d', name, ...window, bias: false },
    { type: 'batchnorm2d', name: norm },
  ]
}
