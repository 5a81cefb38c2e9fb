// Exported models as those read them who predict: whole, or refused with what is wrong.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { exportModel, initialParameters, parameterLayout, parseModelSpec, readModelFile } from '@starling-grid/model'
import { type ModelSignature, versionId, writeSafetensors } from '@starling-grid/protocol'

const spec = parseModelSpec({
  name: 'colours',
  input: [3, 2, 2],
  layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 2 }],
})
const signature: ModelSignature = {
  inputShape: [3, 2, 2],
  storedShape: [3, 4, 4],
  inputScale: 1 / 255,
  classes: 2,
  classNames: ['cat', 'dog'],
  augment: { crop: [2, 2] },
  normalize: { mean: [0.5, 0.4, 0.3], deviation: [0.2, 0.2, 0.2] },
}
const exported = (made: Partial<Parameters<typeof exportModel>[0]>): Uint8Array =>
  exportModel({
    spec,
    layout: parameterLayout(spec),
    parameters: initialParameters(spec, 1),
    version: { v: 3, id: versionId('a'.repeat(64)) },
    ...made,
  })

test('a file alone says what the model takes and what its answers are called', () => {
  const read = readModelFile(exported({ signature }))
  assert.deepEqual(read, { spec, signature, v: 3, parameters: initialParameters(spec, 1) })
})

test('a model without a signature takes what its spec says', () => {
  const { signature: plain } = readModelFile(exported({}))
  assert.deepEqual(plain, { inputShape: [3, 2, 2], inputScale: 1, classes: 2 })
})

test('a signature that does not fit its model is refused before anything is computed', () => {
  const refused = (wrong: object, message: RegExp): void =>
    assert.throws(() => readModelFile(exported({ signature: { ...signature, ...wrong } })), { message })
  refused({ inputShape: [3, 9, 9] }, /expected inputs of \[3, 2, 2\].*got \[3, 9, 9\]/)
  refused({ storedShape: [3, 1, 1] }, /expected images of \[3, 1, 1\] cut to \[3, 2, 2\]/)
  refused({ normalize: { mean: [0], deviation: [1] } }, /expected a mean and a deviation above 0 for each of 3/)
  refused({ extra: 1 }, /signature/)
  refused({ inputShape: Array.from({ length: 40 }, () => 1000) }, /signature/)
})

test('a file of tensors alone, and what is no file at all, are refused with what to take', () => {
  const code = 'model-invalid'
  assert.throws(() => readModelFile(writeSafetensors(new Map()), 'x.safetensors'), {
    code,
    message: /in x\.safetensors/,
  })
  assert.throws(() => readModelFile(new Uint8Array(4)), { code, message: /take an exported model/ })
})
