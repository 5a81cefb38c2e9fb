// Residual networks for small images. Source: He et al., "Deep Residual Learning for Image Recognition" (2015), section 4.2;
// where a block halves the image, its shortcut is a 1 × 1 convolution (option B).

import { parseModelSpec } from '../parse.ts'
import type { ModelSpec } from '../spec.ts'

export interface ResnetOptions {
  /** of each of the three stages; the network has 6 · blocks + 2 layers with weights: 3 make ResNet-20 */
  readonly blocks?: number
  readonly classes?: number
  readonly input?: readonly [channels: number, height: number, width: number]
}

/** Channels of the stages; each but the first halves the image. */
const WIDTHS = [16, 32, 64] as const

/** @example resnet({ blocks: 3 }) is ResNet-20 */
export function resnet({ blocks = 3, classes = 10, input = [3, 32, 32] }: ResnetOptions = {}): ModelSpec {
  const stages = WIDTHS.flatMap((out, stage) =>
    Array.from({ length: blocks }, (_, block) => [residual(`layer${stage + 1}.${block}`, out, stage > 0 && block === 0 ? 2 : 1), { type: 'relu' }]).flat())
  return parseModelSpec({
    name: `resnet${6 * blocks + 2}`, input, loss: 'cross_entropy', inputScale: 1 / 255,
    layers: [...convAndNorm('stem', WIDTHS[0], { kernel: 3, padding: 1 }), { type: 'relu' }, ...stages, { type: 'globalavgpool' }, { type: 'linear', name: 'fc', out: classes }],
  })
}

function residual(name: string, out: number, stride: number): object {
  const layers = [
    ...convAndNorm(name, out, { kernel: 3, padding: 1, stride }, 1), { type: 'relu' }, ...convAndNorm(name, out, { kernel: 3, padding: 1 }, 2),
  ]
  return { type: 'residual', layers, ...(stride === 1 ? {} : { shortcut: convAndNorm(`${name}.shortcut`, out, { kernel: 1, stride }) }) }
}

function convAndNorm(name: string, out: number, window: object, index: number | '' = ''): object[] {
  return [{ type: 'conv2d', name: `${name}.conv${index}`, out, bias: false, ...window }, { type: 'batchnorm2d', name: `${name}.bn${index}` }]
}
