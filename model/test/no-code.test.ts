// A model is numbers and names: nothing of it can become WGSL or JavaScript.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isGridError } from '@starling-grid/protocol'
import { parseModelSpec } from '../src/index.ts'

const CODE = [
  'a; } @compute fn x() { loop {} } //',
  'a\nenable f16;',
  '${globalThis}',
  'a`b',
  '__proto__',
  'constructor',
  'javascript:alert(1)',
  "a'); process.exit(); ('",
  'a\u2028b',
]

const layersWith = (change: object): unknown => ({
  name: 'm',
  input: [1, 8, 8],
  layers: [
    { type: 'conv2d', name: 'c', out: 2, kernel: 3, ...change },
    { type: 'flatten' },
    { type: 'linear', name: 'fc', out: 2 },
  ],
})

function taken(spec: unknown): boolean {
  try {
    parseModelSpec(spec)
    return true
  } catch (error) {
    if (isGridError(error) && error.code === 'model-invalid') return false
    throw error
  }
}

test('threat 54: text in a number, a type, an attribute or a name of a layer is refused', () => {
  assert.ok(taken(layersWith({})))
  for (const code of CODE) {
    for (const key of ['type', 'out', 'kernel', 'stride', 'padding', 'groups', 'bias'])
      assert.ok(!taken(layersWith({ [key]: code })), `${key}: ${code}`)
    assert.ok(!taken(layersWith({ [`x${code}`]: 1 })), `an attribute ${code}`)
    assert.ok(!taken({ ...(layersWith({}) as object), input: [code] }), code)
  }
  for (const code of CODE.filter((text) => !/^[A-Za-z_]+$/.test(text)))
    assert.ok(!taken(layersWith({ name: code })), `a name ${code}`)
})

test('threat 54: numbers that WGSL would read as something else are refused', () => {
  for (const number of [1e300, -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, '3', [3], { valueOf: 3 }])
    for (const key of ['out', 'kernel', 'stride'])
      assert.ok(!taken(layersWith({ [key]: number })), `${key}: ${String(number)}`)
})
