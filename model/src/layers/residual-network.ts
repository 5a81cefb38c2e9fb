// A residual network for photographs, unfolded into operators. Source: He et al., "Deep Residual Learning for Image
// Recognition" (CVPR 2016); from 50 layers on, the 3 × 3 convolution of a block takes the stride. Parameters are named
// as in torchvision, so that published weights fit.

import type { OperatorLayer, ResnetLayer } from '../spec.ts'
import { requireImage } from './rule.ts'
import type { ExpandedOperators, Value } from './transformer.ts'

type Depth = ResnetLayer['depth']

/** Blocks of each stage. */
const STAGES: Readonly<Record<Depth, readonly number[]>> = {
  18: [2, 2, 2, 2],
  34: [3, 4, 6, 3],
  50: [3, 4, 6, 3],
  101: [3, 4, 23, 3],
  152: [3, 8, 36, 3],
}
export const RESNET_DEPTHS: readonly [Depth, ...Depth[]] = [18, 34, 50, 101, 152]
/** From here on blocks have three convolutions, the last of them four times as wide. */
const FIRST_BOTTLENECK = 50
const WIDENING = 4
const NORM = { eps: 1e-5, momentum: 0.1 }

// (C, H, W) → (classes,)
export function expandResnet(
  to: ExpandedOperators,
  { depth, channels, classes }: ResnetLayer,
  image: Value,
  place: string,
): Value {
  requireImage(place, to.shapeOf(image))
  const add = (layer: OperatorLayer, x: Value): Value => to.operator(layer, [x], place)
  const widening = depth < FIRST_BOTTLENECK ? 1 : WIDENING
  let x = convolution(to, image, { name: 'conv1', norm: 'bn1', out: channels, kernel: 7, stride: 2, place })
  x = add({ type: 'maxpool2d', kernel: 3, stride: 2, padding: 1 }, add({ type: 'relu' }, x))
  for (const [stage, blocks] of STAGES[depth].entries())
    for (let i = 0; i < blocks; i++) {
      const width = channels * 2 ** stage
      const stride = stage > 0 && i === 0 ? 2 : 1
      x = expandBlock(to, x, { name: `layer${stage + 1}.${i}`, width, out: widening * width, stride, place })
    }
  return add({ type: 'linear', name: 'fc', out: classes, bias: true }, add({ type: 'globalavgpool' }, x))
}

interface BlockForm {
  readonly name: string
  /** channels of the convolutions but the last of three */
  readonly width: number
  readonly out: number
  readonly stride: number
  readonly place: string
}

function expandBlock(to: ExpandedOperators, x: Value, { name, width, out, stride, place }: BlockForm): Value {
  const relu = (value: Value): Value => to.operator({ type: 'relu' }, [value], place)
  const conv = (input: Value, i: number, form: { out: number; kernel: number; stride: number }): Value =>
    convolution(to, input, { name: `${name}.conv${i}`, norm: `${name}.bn${i}`, ...form, place })
  const through =
    width === out
      ? conv(relu(conv(x, 1, { out, kernel: 3, stride })), 2, { out, kernel: 3, stride: 1 })
      : conv(
          relu(conv(relu(conv(x, 1, { out: width, kernel: 1, stride: 1 })), 2, { out: width, kernel: 3, stride })),
          3,
          { out, kernel: 1, stride: 1 },
        )
  const isAlike = stride === 1 && to.shapeOf(x)[0] === out
  const downsample = { name: `${name}.downsample.0`, norm: `${name}.downsample.1`, out, kernel: 1, stride, place }
  const shortcut = isAlike ? x : convolution(to, x, downsample)
  return relu(to.operator({ type: 'add' }, [shortcut, through], place))
}

interface ConvolutionForm {
  readonly name: string
  readonly norm: string
  readonly out: number
  readonly kernel: number
  readonly stride: number
  readonly place: string
}

/** With its batch norm, and so without a bias. */
function convolution(
  to: ExpandedOperators,
  x: Value,
  { name, norm, out, kernel, stride, place }: ConvolutionForm,
): Value {
  const padding = (kernel - 1) / 2
  const made = to.operator({ type: 'conv2d', name, out, kernel, stride, padding, groups: 1, bias: false }, [x], place)
  return to.operator({ type: 'batchnorm2d', name: norm, ...NORM }, [made], place)
}
