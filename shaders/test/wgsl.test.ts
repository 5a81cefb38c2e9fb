// The text of shaders, as far as it can be checked without a GPU.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import {
  bindingBytes,
  candidatesFor,
  filesOf,
  KERNEL_URLS,
  passSource,
  PLAIN_TRAITS,
  workgroupGrid,
  workgroupShare,
  type KernelCall,
  type Pass,
} from '@starling-grid/shaders'
import { array, matrix, optional } from '../src/recipe.ts'

const pool = { channels: 3, height: 7, width: 9, outHeight: 3, outWidth: 4, kernel: 3, stride: 2, padding: 0 }
const conv = { ...pool, out: 6, groups: 3 }
const linear = { rows: 2, in: 5, out: 8 }
const vector = { size: 7 }
const rows = { rows: 3, columns: 5 }
const rowNorm = { ...rows, eps: 1e-5 }
const channelNorm = { channels: 6, plane: 63, groupChannels: 2, eps: 1e-5 }
const rotary = { length: 3, heads: 4, own: 2, headSize: 6, part: 1, turns: true } as const
const piece = { rows: 1, classes: 5, first: 0, all: 10 }
const all = {
  x: 1,
  y: 1,
  dy: 1,
  dx: 1,
  weight: 1,
  bias: 1,
  dweight: 1,
  dbias: 1,
  target: 1,
  loss: 1,
  correct: 1,
  mean: 1,
  inverse: 1,
  variance: 1,
  dmean: 1,
  dvariance: 1,
  keys: 1,
  a: 1,
  b: 1,
  qkv: 1,
  dqkv: 1,
  angles: 1,
  cache: 1,
  logits: 1,
  before: 1,
  state: 1,
  logSums: 1,
  ids: 1,
  packed: 1,
}

const CALLS: readonly KernelCall<unknown>[] = [
  { kernel: 'linear.forward', dims: linear, operands: all },
  { kernel: 'linear.inputGradient', dims: linear, operands: all },
  { kernel: 'linear.parameterGradient', dims: linear, operands: all },
  {
    kernel: 'linear.forward',
    dims: { ...linear, activation: 'leaky_relu', slope: 0.1 },
    operands: { x: 1, weight: 1, residual: 1, y: 1 },
  },
  { kernel: 'conv2d.forward', dims: conv, operands: all },
  { kernel: 'conv2d.inputGradient', dims: conv, operands: all },
  { kernel: 'conv2d.parameterGradient', dims: conv, operands: all },
  { kernel: 'maxpool2d.forward', dims: pool, operands: all },
  { kernel: 'maxpool2d.backward', dims: pool, operands: all },
  { kernel: 'avgpool2d.forward', dims: pool, operands: all },
  { kernel: 'avgpool2d.backward', dims: pool, operands: all },
  { kernel: 'globalavgpool.forward', dims: channelNorm, operands: all },
  { kernel: 'globalavgpool.backward', dims: channelNorm, operands: all },
  { kernel: 'transpose.forward', dims: { rows: 3, columns: 5 }, operands: all },
  { kernel: 'class_token.forward', dims: { size: 10, token: 5 }, operands: all },
  { kernel: 'class_token.parameterGradient', dims: { size: 10, token: 5 }, operands: all },
  { kernel: 'first_token.backward', dims: { size: 10, token: 5 }, operands: all },
  { kernel: 'upsample.forward', dims: { channels: 2, height: 3, width: 5, scale: 2 }, operands: all },
  { kernel: 'upsample.backward', dims: { channels: 2, height: 3, width: 5, scale: 2 }, operands: all },
  { kernel: 'concat.forward', dims: { size: 7, offset: 2, total: 11 }, operands: all },
  { kernel: 'concat.backward', dims: { size: 7, offset: 2, total: 11 }, operands: all },
  { kernel: 'dropout.forward', dims: { size: 7, node: 3, p: 0.2 }, operands: all },
  { kernel: 'scale.forward', dims: { ...vector, factor: 0.5 }, operands: all },
  { kernel: 'swiglu.forward', dims: vector, operands: all },
  { kernel: 'swiglu.gateGradient', dims: vector, operands: all },
  { kernel: 'swiglu.valueGradient', dims: vector, operands: all },
  { kernel: 'rotary.forward', dims: rotary, operands: all },
  { kernel: 'rotary.forward', dims: { ...rotary, length: 1, context: 9 }, operands: { ...all, places: 1 } },
  { kernel: 'rotary.backward', dims: rotary, operands: all },
  {
    kernel: 'cached_attention.forward',
    dims: { context: 5, heads: 2, headSize: 3 },
    operands: { ...all, places: 1 },
  },
  { kernel: 'unpack.forward', dims: { rows: 3, columns: 37, storage: 'int8' }, operands: all },
  { kernel: 'unpack.rows', dims: { tokens: 3, vocab: 5, channels: 37, storage: 'int4' }, operands: all },
  { kernel: 'relu.forward', dims: vector, operands: all },
  { kernel: 'relu.backward', dims: vector, operands: all },
  { kernel: 'leaky_relu.forward', dims: { ...vector, slope: 0.01 }, operands: all },
  { kernel: 'leaky_relu.backward', dims: { ...vector, slope: 0.01 }, operands: all },
  { kernel: 'gelu.forward', dims: vector, operands: all },
  { kernel: 'gelu.backward', dims: vector, operands: all },
  { kernel: 'gelu_tanh.forward', dims: vector, operands: all },
  { kernel: 'gelu_tanh.backward', dims: vector, operands: all },
  { kernel: 'silu.forward', dims: vector, operands: all },
  { kernel: 'silu.backward', dims: vector, operands: all },
  { kernel: 'softmax.forward', dims: rows, operands: all },
  { kernel: 'softmax.backward', dims: rows, operands: all },
  { kernel: 'layernorm.forward', dims: rowNorm, operands: all },
  { kernel: 'layernorm.inputGradient', dims: rowNorm, operands: all },
  { kernel: 'layernorm.parameterGradient', dims: rowNorm, operands: all },
  { kernel: 'rmsnorm.forward', dims: rowNorm, operands: all },
  { kernel: 'rmsnorm.inputGradient', dims: rowNorm, operands: all },
  { kernel: 'rmsnorm.parameterGradient', dims: rowNorm, operands: all },
  { kernel: 'groupnorm.forward', dims: channelNorm, operands: all },
  { kernel: 'groupnorm.backward', dims: channelNorm, operands: all },
  { kernel: 'batchnorm2d.forward', dims: channelNorm, operands: all },
  { kernel: 'batchnorm2d.backward', dims: channelNorm, operands: all },
  { kernel: 'batchnorm2d.evaluate', dims: channelNorm, operands: all },
  { kernel: 'batchnorm2d.statistics', dims: { ...channelNorm, targets: 1 }, operands: all },
  { kernel: 'cross_entropy.loss', dims: { rows: 1, classes: 5 }, operands: all },
  { kernel: 'cross_entropy.look', dims: piece, operands: { logits: 1, target: 1, state: 1 } },
  { kernel: 'cross_entropy.look', dims: { ...piece, first: 5 }, operands: all },
  { kernel: 'cross_entropy.join', dims: { rows: 1, classes: 10 }, operands: all },
  { kernel: 'cross_entropy.gradient', dims: piece, operands: all },
  { kernel: 'mse.loss', dims: vector, operands: all },
]

/** The passes of every variant. */
function passesOf(call: KernelCall<unknown>) {
  return candidatesFor(call, 4, PLAIN_TRAITS).flatMap(({ family, recipe }) =>
    recipe(4).passes.map((pass) => ({ family, pass })),
  )
}

for (const call of CALLS)
  test(`${call.kernel} declares all that it uses, and uses all that it declares`, () => {
    for (const { family, pass } of passesOf(call)) {
      const source = passSource(
        pass,
        filesOf(pass)
          .map((file) => readFileSync(KERNEL_URLS[file], 'utf8'))
          .join('\n'),
      )
      assert.match(source, new RegExp(`fn ${pass.entryPoint}\\(`))
      for (const { name } of pass.bindings)
        assert.ok(
          source.split(new RegExp(`\\b${name}(?:_\\w+)?\\b`)).length > 2,
          `${pass.entryPoint} never uses ${name}`,
        )
      assert.equal(source.match(/@compute/g)?.length, 1, 'one entry point')
      assert.doesNotMatch(source, family === 'register' ? /var<workgroup>|workgroupBarrier|atomic/ : /atomic/)
      assert.ok(Number.isInteger(pass.threads(4)) && pass.threads(4) > 0)
    }
  })

const FILE = `
// uses: unused
const SHARED = 2.0;
fn helper(v: f32) -> f32 { return SHARED * v; }
@compute @workgroup_size(WORKGROUP)
fn first() { x[0] = helper(1.0); }
@compute @workgroup_size(WORKGROUP)
fn second() { y[0] = 1.0; }
fn unused() { z[0] = 1.0; }
`

function pass(entryPoint: string, bindings: Pass['bindings']): Pass {
  return { file: 'mse', entryPoint, constants: { N: 3 }, bindings, workgroup: 32, threads: () => 1 }
}

test('a shader holds its entry point with what that calls, and nothing else of the file', () => {
  const source = passSource(pass('first', [array('x', 'write', 1)]), FILE)
  assert.match(source, /fn helper/)
  assert.match(source, /const SHARED/)
  assert.match(source, /const N = 3u;/)
  assert.doesNotMatch(source, /second|unused|z\[0\]/)
})

test('a vector that a layer lacks takes no binding', () => {
  const source = passSource(pass('second', [optional('bias', 'read', 4, undefined), array('y', 'write', 1)]), FILE)
  assert.match(source, /fn bias_at\(i: u32\) -> f32 \{ return 0\.0; \}/)
  assert.match(source, /@binding\(1\) var<storage, read_write> y: array<f32, 1>/)
})

test('matrices of whole quads are read as such, others element by element', () => {
  assert.match(passSource(pass('second', [matrix('a', 'read', 3, 8)]), FILE), /a: array<vec4f, 7>/)
  assert.match(passSource(pass('second', [matrix('a', 'read', 3, 5)]), FILE), /a: array<f32, 20>/)
  assert.equal(bindingBytes(matrix('a', 'read', 3, 8)), 7 * 16)
})

test('large dispatches fold into a second dimension', () => {
  assert.deepEqual(workgroupGrid(64, 64), { x: 1, y: 1 })
  assert.deepEqual(workgroupGrid(65_535 * 64 + 1, 64), { x: 65_535, y: 2 })
})

test('the shares of a dispatch have each workgroup once, folded ones in whole rows', () => {
  for (const groups of [1, 7, 100_000, 65_535 * 5 + 3])
    for (const count of [1, 2, 3, 100]) {
      let next = 0
      for (let index = 0; index < count; index++) {
        const { first, x, y } = workgroupShare(groups * 64, 64, { index, count })
        if (x === 0) continue
        assert.equal(first, next, `${groups} groups in ${count}`)
        assert.ok(x <= 65_535)
        // what a folded grid has too much lies past the last group
        next = Math.min(groups, first + x * y)
        if (next < groups) assert.equal(next, first + x * y)
      }
      assert.equal(next, groups)
    }
})
