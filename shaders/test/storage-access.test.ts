// Kernels written for f32 that run with values stored as f16, and results that carry the loss scale.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bindingBytes, passSource, type Pass } from '@starling-grid/shaders'
import { array } from '../src/recipe.ts'
import { rewriteStorage } from '../src/storage-access.ts'

const half = { half: true, grouped: false, scaled: false }
const grouped = { ...half, grouped: true }
const scaled = { half: false, grouped: false, scaled: true }

test('reads widen and writes narrow, wherever brackets and comparisons stand', () => {
  const rewrite = (source: string) =>
    rewriteStorage(
      source,
      new Map([
        ['x', grouped],
        ['y', half],
      ]),
    )
  assert.equal(rewrite('let a = x[i] + x[at[j] + 1u].y;'), 'let a = vec4f(x[i]) + vec4f(x[at[j] + 1u]).y;')
  assert.equal(rewrite('y[i] = exp(y[i]) * 2.0;'), 'y[i] = f16(exp(f32(y[i])) * 2.0);')
  assert.equal(rewrite('if (y[i] == 0.0) { x[y_at[k]] = v; }'), 'if (f32(y[i]) == 0.0) { x[y_at[k]] = vec4h(v); }')
  assert.equal(rewrite('dx[i] = my[i];'), 'dx[i] = my[i];')
})

test('results that are scaled are so once, halves too', () => {
  assert.equal(rewriteStorage('d[i] = a - b;', new Map([['d', scaled]])), 'd[i] = run.loss_scale * (a - b);')
  assert.equal(
    rewriteStorage('d[i] = a;', new Map([['d', { ...half, scaled: true }]])),
    'd[i] = f16(run.loss_scale * (a));',
  )
})

test('a sum in place is never stored as f16', () => {
  assert.throws(() => rewriteStorage('y[i] += v;', new Map([['y', half]])), /internal: y/)
})

test('a half takes half the bytes, in whole words, and its shader asks for f16', () => {
  const binding = { ...array('x', 'write', 5), half: true }
  assert.equal(bindingBytes(binding), 12)
  const pass: Pass = {
    file: 'relu',
    entryPoint: 'f',
    constants: {},
    bindings: [binding],
    workgroup: 32,
    threads: () => 1,
  }
  const source = passSource(pass, '\n@compute @workgroup_size(WORKGROUP)\nfn f() { x[0] = 1.0; }\n')
  assert.match(source, /^enable f16;/)
  assert.match(source, /x: array<f16, 5>/)
  assert.match(source, /x\[0\] = f16\(1\.0\);/)
  assert.doesNotMatch(
    passSource(
      { ...pass, bindings: [array('x', 'write', 5)] },
      '\n@compute @workgroup_size(WORKGROUP)\nfn f() { x[0] = 1.0; }\n',
    ),
    /f16/,
  )
})
