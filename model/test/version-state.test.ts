import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  decodeVersionState,
  encodeVersionState,
  exportBytes,
  exportModel,
  initialVersionState,
  maxVersionBytes,
  modelHash,
  parameterLayout,
  parameterParts,
  parseModelSpec,
  readParameters,
} from '@starling-grid/model'
import {
  digest,
  genesis,
  GridError,
  jobId,
  type StoredTensor,
  readSafetensors,
  writeSafetensors,
} from '@starling-grid/protocol'
import { applyUpdate, createOptimizerState, type OptimizerSpec } from '@starling-grid/shaders'

const spec = parseModelSpec({
  name: 'tiny',
  input: [4],
  layers: [{ type: 'linear', name: 'fc1', out: 3 }, { type: 'relu' }, { type: 'linear', name: 'fc2', out: 2 }],
})
const layout = parameterLayout(spec)
const version = genesis(jobId('j'), modelHash(spec), 5)
const OPTIMIZERS: OptimizerSpec[] = [
  { type: 'sgd', lr: 0.1 },
  { type: 'sgd', lr: 0.1, momentum: 0.9 },
  { type: 'adamw', lr: 0.01 },
]

/** A state some steps in, so that no part of it is zero. */
function trained(optimizer: OptimizerSpec) {
  const { parameters, optimizerState } = initialVersionState(spec, optimizer, 5)
  const gradient = Float32Array.from(parameters, (_, i) => Math.sin(i))
  applyUpdate(optimizer, optimizerState, parameters, gradient, parameters, optimizerState)
  return { spec, layout, optimizer, version, parameters, optimizerState }
}

function refused(change: (tensors: Map<string, StoredTensor>, metadata: Record<string, string>) => void): void {
  const [optimizer = { type: 'sgd', lr: 1 } as const] = OPTIMIZERS.slice(2)
  const { tensors, metadata } = readSafetensors(encodeVersionState(trained(optimizer)))
  change(tensors, metadata)
  const bytes = writeSafetensors(tensors, metadata)
  assert.throws(
    () => decodeVersionState(bytes, { spec, layout, optimizer, version }),
    (error) => error instanceof GridError && error.code === 'version-corrupt',
  )
}

for (const optimizer of OPTIMIZERS)
  test(`a version with ${optimizer.type} comes back whole, as the same bytes, below its bound`, () => {
    const bytes = encodeVersionState(trained(optimizer))
    const decoded = decodeVersionState(bytes, { spec, layout, optimizer, version })
    assert.deepEqual(decoded, {
      version,
      parameters: trained(optimizer).parameters,
      optimizerState: trained(optimizer).optimizerState,
    })
    assert.deepEqual(encodeVersionState({ spec, layout, optimizer, ...decoded }), bytes)
    assert.ok(bytes.byteLength <= maxVersionBytes({ layout, optimizer }))
  })

test('the digest of version 0 is the same on every machine', () => {
  const optimizer: OptimizerSpec = { type: 'sgd', lr: 0.1, momentum: 0.9 }
  const bytes = encodeVersionState({ spec, layout, optimizer, version, ...initialVersionState(spec, optimizer, 5) })
  assert.equal(digest(bytes).slice(0, 16), 'e9ef3c607a67ba0c')
})

test('a tensor that is missing, strange, of another shape or not finite is refused', () => {
  refused((tensors) => tensors.delete('fc1.bias'))
  refused((tensors) => tensors.delete('optimizer.exp_avg'))
  refused((tensors) => tensors.set('hidden', { dtype: 'U8', shape: [1], data: new Uint8Array(1) }))
  refused((tensors) => tensors.set('fc2.bias', { dtype: 'F32', shape: [1], data: new Uint8Array(4) }))
  refused((tensors) =>
    tensors.set('fc2.bias', { dtype: 'F32', shape: [2], data: new Uint8Array(Float32Array.of(0, Number.NaN).buffer) }),
  )
  refused((tensors) =>
    tensors.set('optimizer.exp_avg', {
      dtype: 'F32',
      shape: [layout.total],
      data: new Uint8Array(new Float32Array(layout.total).fill(Number.POSITIVE_INFINITY).buffer),
    }),
  )
})

test('another version, another model or another kind of file is refused', () => {
  refused((_, metadata) => Object.assign(metadata, { id: 'f'.repeat(64) }))
  refused((_, metadata) => Object.assign(metadata, { v: '-1' }))
  refused((_, metadata) => Object.assign(metadata, { model: 'f'.repeat(64) }))
  refused((_, metadata) => Object.assign(metadata, { format: 'pt' }))
  assert.throws(() => decodeVersionState(new Uint8Array(3), { spec, layout, optimizer: { type: 'sgd', lr: 1 } }), {
    code: 'version-corrupt',
  })
})

test('parameters alone come back, and an export carries what torch expects and what using it needs', () => {
  const { parameters } = trained({ type: 'sgd', lr: 0.1 })
  const alone = Buffer.concat(parameterParts({ spec, layout, version, parameters }))
  assert.deepEqual(readParameters(alone, layout, version), parameters)
  assert.throws(() => readParameters(alone, layout, { ...version, v: 1 }), { code: 'version-corrupt' })
  const { tensors, metadata } = readSafetensors(exportModel({ spec, layout, version, parameters, accuracy: 0.5 }))
  assert.deepEqual(
    [...tensors].map(([name, { shape }]) => [name, shape]),
    [
      ['fc1.weight', [3, 4]],
      ['fc1.bias', [3]],
      ['fc2.weight', [2, 3]],
      ['fc2.bias', [2]],
    ],
  )
  assert.deepEqual(metadata, {
    format: 'pt',
    name: 'tiny',
    v: '0',
    id: version.id,
    model: modelHash(spec),
    spec: JSON.stringify(spec),
    accuracy: '0.5',
  })
  const text = { spec, layout, version, parameters, vocabulary: ' aé🦓', accuracy: 0.25, accuracyConfirmed: false }
  const { metadata: ofText } = readSafetensors(exportModel(text))
  assert.equal(exportBytes(text), exportModel(text).byteLength)
  assert.equal(ofText['vocabulary'], ' aé🦓')
})

test('a state of another length is a bug and not written', () => {
  const optimizer: OptimizerSpec = { type: 'sgd', lr: 1 }
  assert.throws(
    () =>
      encodeVersionState({
        spec,
        layout,
        optimizer,
        version,
        parameters: new Float32Array(1),
        optimizerState: createOptimizerState(optimizer, 1),
      }),
    /internal/,
  )
})
