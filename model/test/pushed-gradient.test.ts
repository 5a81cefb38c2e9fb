// What is known of a push when it was read: the same bits, whatever its runs are.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  BLOCK_ELEMENTS,
  completed,
  decodeVector,
  encodeVector,
  gradientForm,
  type GradientRun,
  parameterLayout,
  parseModelSpec,
  readPush,
  runsOf,
  summingSquares,
  writeGradient,
  writingRuns,
} from '@starling-grid/model'
import { sumOfSquares } from '@starling-grid/shaders'

/** Statistics begin within a block, and within a run of an encoded vector. */
const spec = parseModelSpec({
  input: [2, 4, 4],
  layers: [
    { type: 'conv2d', name: 'conv', out: 300, kernel: 1 },
    { type: 'batchnorm2d', name: 'bn' },
    { type: 'flatten' },
    { type: 'linear', name: 'fc', out: 15 },
  ],
})
const layout = parameterLayout(spec)
const { total, trained } = layout
const values = Float32Array.from({ length: total }, (_, i) => Math.sin(i) * (i % 1000))

/** The norm's squares as one vector has them. */
function squaresIn(vector: Float32Array): { readonly gradient: number; readonly statistics: number } {
  const blocks = (part: Float32Array): number => {
    let sum = 0
    for (let i = 0; i < part.length; i += BLOCK_ELEMENTS) sum += sumOfSquares(part.subarray(i, i + BLOCK_ELEMENTS))
    return sum
  }
  return { gradient: blocks(vector.subarray(0, trained)), statistics: blocks(vector.subarray(trained)) }
}

function written(runs: Iterable<GradientRun>): Float32Array {
  const vector = new Float32Array(total).fill(9)
  completed(writingRuns(runs, vector))
  return vector
}

test('the model of these tests has statistics behind a border that no block and no run begins with', () => {
  assert.ok(total > 65_536 && trained > 65_536 && trained < total && trained % BLOCK_ELEMENTS !== 0)
})

for (const encoding of ['f16', 'int8', 'sparse2'] as const)
  test(`a push in ${encoding} has the numbers and the squares of its decoded vector`, () => {
    const body = encodeVector(values, encoding)
    const decoded = new Float32Array(total)
    decodeVector(body, encoding, decoded)
    const { runs, squares } = readPush(body, gradientForm(layout, [], encoding), trained)
    assert.deepEqual(written(runs()), decoded)
    assert.deepEqual(squares, squaresIn(decoded))
  })

test('a push as f32 has the squares of its vector', () => {
  const { body } = writeGradient(values, layout, [])
  const { runs, squares } = readPush(body, gradientForm(layout), trained)
  assert.deepEqual(written(runs()), values)
  assert.deepEqual(squares, squaresIn(values))
})

test('squares do not depend on how a vector is cut into runs', () => {
  for (const length of [1, 3, 100, BLOCK_ELEMENTS - 1, BLOCK_ELEMENTS, 10_000]) {
    const cut = function* (): Generator<GradientRun> {
      for (let start = 0; start < total; start += length) yield* runsOf(values.subarray(start, start + length), start)
    }
    assert.deepEqual(completed(summingSquares(cut(), trained)), squaresIn(values), `runs of ${length}`)
  }
})

test('a number that is not finite is refused with what it is, wherever it is', () => {
  for (const at of [0, trained - 1, trained, total - 1])
    for (const bad of [Number.NaN, Number.NEGATIVE_INFINITY]) {
      const { body } = writeGradient(values.with(at, bad), layout, [])
      assert.throws(() => readPush(body, gradientForm(layout), trained), {
        code: 'gradient-not-finite',
        message: `expected finite elements, got ${bad}`,
      })
    }
})
