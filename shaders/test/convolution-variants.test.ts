// Which of the ways to convolve by subgroups is worth a try, without measuring: volunteers on software adapters go by
// it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type AdapterTraits, candidatesFor, type KernelCall, PLAIN_TRAITS } from '../src/index.ts'

const SAMPLES = 64
const EIGHT: AdapterTraits = { ...PLAIN_TRAITS, features: new Set(['subgroups']), subgroupSize: 8 }
const FOUR: AdapterTraits = { ...EIGHT, subgroupSize: 4 }

const LENET_2 = {
  channels: 6,
  height: 14,
  width: 14,
  out: 16,
  outHeight: 10,
  outWidth: 10,
  kernel: 5,
  stride: 1,
  padding: 0,
  groups: 1,
}
const RESNET = {
  channels: 32,
  height: 16,
  width: 16,
  out: 32,
  outHeight: 16,
  outWidth: 16,
  kernel: 3,
  stride: 1,
  padding: 1,
  groups: 1,
}

type Kernel = 'conv2d.forward' | 'conv2d.inputGradient' | 'conv2d.parameterGradient'

function first(kernel: Kernel, dims: typeof RESNET, traits: AdapterTraits): string {
  const operands = { x: 0, weight: 0, y: 0, dy: 0, dx: 0, dweight: 0 }
  const [best] = candidatesFor({ kernel, dims, operands } as KernelCall<unknown>, SAMPLES, traits)
  return best?.name.endsWith('windows') ? 'windows' : 'lines'
}

test('forward goes through windows, whatever the subgroups', () => {
  for (const traits of [EIGHT, FOUR])
    for (const dims of [LENET_2, RESNET]) assert.equal(first('conv2d.forward', dims, traits), 'windows')
})

test('the input gradient uses the window kernel where padding is small and enough invocations share', () => {
  assert.equal(first('conv2d.inputGradient', RESNET, EIGHT), 'windows')
  assert.equal(first('conv2d.inputGradient', RESNET, FOUR), 'lines')
  assert.equal(first('conv2d.inputGradient', LENET_2, EIGHT), 'lines')
})

test('the gradient of the weights goes through windows where enough invocations share what is joint', () => {
  assert.equal(first('conv2d.parameterGradient', LENET_2, EIGHT), 'windows')
  assert.equal(first('conv2d.parameterGradient', LENET_2, FOUR), 'lines')
})

test('strides, single columns and wide kernels go through lines', () => {
  const others = [
    { ...RESNET, stride: 2, outHeight: 8, outWidth: 8 },
    { ...RESNET, kernel: 1, padding: 0 },
    { ...RESNET, kernel: 7, padding: 3 },
  ]
  for (const dims of others)
    for (const kernel of ['conv2d.forward', 'conv2d.inputGradient', 'conv2d.parameterGradient'] as const)
      assert.equal(first(kernel, dims, EIGHT), 'lines')
})
