import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import {
  initialParameters,
  lenet5,
  mlp,
  modelHash,
  outputShape,
  parameterCount,
  parameterLayout,
  parseModelSpec,
  targetsPerSample,
  layerShapes,
  resnet,
} from '@starling-grid/model'
import { GridError } from '@starling-grid/protocol'
import { flopsPerSample } from '../src/param-layout.ts'

function assertInvalid(json: unknown, pattern: RegExp): void {
  assert.throws(
    () => parseModelSpec(json),
    (error: unknown) => {
      assert.ok(error instanceof GridError, String(error))
      assert.equal(error.code, 'model-invalid')
      assert.match(error.message, pattern)
      return true
    },
  )
}

const layer = (attributes: unknown, input: unknown = [1, 28, 28]) => ({ input, layers: [attributes] })

test('LeNet-5 has the parameters that PyTorch would give it, in layer order', () => {
  const { total, entries } = parameterLayout(lenet5())
  assert.equal(total, 61_706)
  assert.deepEqual(
    entries.map((entry) => entry.name),
    ['conv1', 'conv2', 'fc1', 'fc2', 'fc3'].flatMap((n) => [`${n}.weight`, `${n}.bias`]),
  )
  assert.deepEqual(entries[2], {
    name: 'conv2.weight',
    shape: [16, 6, 5, 5],
    offset: 156,
    length: 2400,
    kind: 'trained',
    initial: { type: 'uniform', fanIn: 150 },
  })
  assert.deepEqual(outputShape(lenet5()), [10])
  assert.equal(targetsPerSample(lenet5()), 1)
  assert.ok(flopsPerSample(lenet5()) > 2_400_000 && flopsPerSample(lenet5()) < 2_700_000)
})

test('every spec error names the layer, what it expects and what it gets', () => {
  const mismatch = { input: [4, 8, 8], layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', in: 400, out: 2 }] }
  assertInvalid(mismatch, /^layer 1 `linear` expects 400 inputs and gets 256$/)
  assertInvalid(
    layer({ type: 'lienar', name: 'a', out: 1 }),
    /^layer 0 expects `type` to be one of linear, .* gets "lienar"$/,
  )
  assertInvalid(layer({ type: 'linear', out: 3 }), /^layer 0 `linear` expects `name` .* gets nothing$/)
  assertInvalid(layer({ type: 'linear', name: 'a', out: 0 }), /`out` to be a whole number .* gets 0$/)
  assertInvalid(layer({ type: 'linear', name: 'a', out: 1.5 }), /gets 1.5$/)
  assertInvalid(layer({ type: 'linear', name: '<b>', out: 1 }), /dotted name/)
  assertInvalid(layer({ type: 'linear', name: 'a', out: 1, biass: true }), /unknown attribute `biass`/)
  assertInvalid(
    layer({ type: 'conv2d', name: 'c', out: 4, kernel: 3, groups: 2 }),
    /input channels divisible by its 2 groups and gets 1/,
  )
  assertInvalid(
    layer({ type: 'conv2d', name: 'c', out: 4, kernel: 3 }, [784]),
    /expects an image .* gets the shape \[784\]/,
  )
  assertInvalid(layer({ type: 'conv2d', name: 'c', out: 4, kernel: 31 }), /at least 31 × 31/)
  assertInvalid(layer({ type: 'maxpool2d', kernel: 2, padding: 2 }), /at most half its kernel/)
  assertInvalid(layer({ type: 'relu' }, [0]), /`input`/)
  assertInvalid(layer({ type: 'relu' }, [1e8, 1e8]), /`input`/)
  assertInvalid(layer({ type: 'linear', name: 'a', out: 2 ** 24 }), /expects at most .* values per sample/)
  assertInvalid(layer('relu'), /expects an object and gets "relu"/)
  assertInvalid({ input: [1], layers: [] }, /`layers`/)
  assertInvalid(null, /the model expects an object/)
  const twice = { type: 'linear', name: 'a', out: 3 }
  assertInvalid({ input: [3], layers: [twice, twice] }, /two that hold a parameter `a.weight`/)
})

test('linear keeps leading dimensions, mse counts every output as a target', () => {
  const spec = parseModelSpec({ input: [9, 24], layers: [{ type: 'linear', name: 'a', out: 40 }], loss: 'mse' })
  assert.deepEqual(outputShape(spec), [9, 40])
  assert.equal(targetsPerSample(spec), 360)
  assert.equal(targetsPerSample({ ...spec, loss: 'cross_entropy' }), 9)
})

test('initial values are the same bytes on every machine', () => {
  const flat = initialParameters(lenet5(), 42)
  const digest = createHash('sha256').update(new Uint8Array(flat.buffer)).digest('hex')
  assert.equal(digest, '6ffbbc4ef74b71b5b77a6aa18a9dfbe9149375b008c957c472e9f5f5be014150')
})

test('initial values spread over ±1/√fanIn and differ by seed and tensor', () => {
  const spec = mlp({ input: [100], hidden: [100, 100], classes: 10 })
  const flat = initialParameters(spec, 1)
  const [first, , second] = parameterLayout(spec).entries
  assert.ok(first && second)
  const a = flat.subarray(first.offset, first.offset + first.length)
  const b = flat.subarray(second.offset, second.offset + second.length)
  const mean = a.reduce((sum, value) => sum + value, 0) / a.length
  const variance = a.reduce((sum, value) => sum + value * value, 0) / a.length
  assert.ok(a.every((value) => Math.abs(value) <= 0.1))
  assert.ok(Math.abs(mean) < 0.002)
  assert.ok(Math.abs(variance / (0.1 ** 2 / 3) - 1) < 0.05)
  assert.notDeepEqual(a, b)
  assert.notDeepEqual(flat, initialParameters(spec, 2))
  assert.notDeepEqual(flat, initialParameters(spec, 2 ** 32 + 1))
})

test('the model hash follows the content, not the order of keys or the defaults left out', () => {
  const spelledOut = parseModelSpec({
    inputScale: 1,
    loss: 'cross_entropy',
    layers: [{ bias: true, out: 10, name: 'fc', type: 'linear' }],
    input: [4],
    name: 'm',
  })
  const brief = parseModelSpec({ name: 'm', input: [4], layers: [{ type: 'linear', name: 'fc', out: 10 }] })
  assert.equal(modelHash(spelledOut), modelHash(brief))
  assert.match(modelHash(brief), /^[0-9a-f]{64}$/)
  assert.notEqual(modelHash(brief), modelHash({ ...brief, input: [5] }))
  assert.equal(parameterCount(brief), 50)
})

test('ResNet-20 has the parameters of the paper with projection shortcuts, named as in torchvision', () => {
  const { entries, trained } = parameterLayout(resnet({ depth: 20 }))
  assert.equal(trained, 272_474)
  const names = new Set(entries.map(({ name }) => name))
  for (const name of [
    'conv1.weight',
    'bn1.running_mean',
    'layer1.0.conv1.weight',
    'layer2.0.downsample.0.weight',
    'layer2.0.downsample.1.running_var',
    'layer3.2.bn2.bias',
    'fc.bias',
  ])
    assert.ok(names.has(name), name)
  assert.deepEqual(outputShape(resnet({ depth: 56, classes: 7 })), [7])
  assert.equal(layerShapes(resnet({ depth: 32, channels: 4 })).filter(({ layer }) => layer.type === 'add').length, 15)
  assert.throws(() => resnet({ depth: 21 }), /depth of 6n \+ 2, such as 20, 32 or 56, and gets 21/)
})

const PHOTOGRAPH = [3, 224, 224]
const published = (layer: object, input: readonly number[] = PHOTOGRAPH) =>
  parseModelSpec({ input, layers: [{ classes: 1000, ...layer }] })

test('ResNets for photographs have the parameters of torchvision', () => {
  for (const [depth, count] of [
    [18, 11_689_512],
    [34, 21_797_672],
    [50, 25_557_032],
  ] as const) {
    const spec = published({ type: 'resnet', depth })
    assert.equal(parameterLayout(spec).trained, count)
    assert.deepEqual(outputShape(spec), [1000])
  }
  const names = new Set(parameterLayout(published({ type: 'resnet', depth: 50 })).entries.map(({ name }) => name))
  for (const name of [
    'conv1.weight',
    'layer1.0.downsample.0.weight',
    'layer4.2.conv3.weight',
    'layer3.5.bn3.running_var',
  ])
    assert.ok(names.has(name), name)
  assert.throws(() => published({ type: 'resnet', depth: 20 }), /one of 18, 34, 50, 101, 152/)
})

test('vision transformers have the parameters of timm, with their shapes', () => {
  const spec = published({ type: 'vit', patch: 16, channels: 192, blocks: 12, heads: 3 })
  const { entries, trained } = parameterLayout(spec)
  assert.equal(trained, 5_717_416)
  const shapes = new Map(entries.map(({ name, shape }) => [name, shape.join()]))
  for (const [name, shape] of [
    ['cls_token', '1,1,192'],
    ['pos_embed', '1,197,192'],
    ['patch_embed.proj.weight', '192,3,16,16'],
    ['blocks.0.attn.qkv.weight', '576,192'],
    ['blocks.11.mlp.fc2.bias', '192'],
    ['norm.weight', '192'],
    ['head.weight', '1000,192'],
  ] as const)
    assert.equal(shapes.get(name), shape, name)
  const mean = published({ type: 'vit', patch: 8, channels: 12, blocks: 1, heads: 3, pool: 'mean' }, [3, 16, 24])
  const names = new Set(parameterLayout(mean).entries.map(({ name }) => name))
  assert.ok(names.has('fc_norm.weight') && !names.has('cls_token') && !names.has('norm.weight'))
  assert.throws(
    () => published({ type: 'vit', patch: 5, channels: 12, blocks: 1, heads: 3 }),
    /sides its patches of 5 divide and gets 224 × 224/,
  )
})

test('a model that no volunteer could hold is refused with both of its numbers', () => {
  const big = { type: 'conv2d', name: 'a', out: 60, kernel: 1 }
  const wide = (count: number) => ({
    input: [1, 1000, 1000],
    layers: [big, ...Array.from({ length: count }, () => ({ type: 'relu' }))],
  })
  assert.equal(parameterCount(parseModelSpec(wide(3))), 120)
  assertInvalid(
    wide(4),
    /^the model expects at most \d+ parameters and 1073741824 bytes of activations per sample and gets 120 and 12\d+;/,
  )
})

test('batch norm beside ignored targets is refused, since it measures every sample', () => {
  const spec = {
    input: [1, 4, 4],
    ignore_index: -1,
    layers: [{ type: 'batchnorm2d', name: 'bn' }, { type: 'flatten' }],
  }
  assertInvalid(spec, /^layer 0 `batchnorm2d` .*`ignore_index`.*; use `groupnorm`$/)
})
