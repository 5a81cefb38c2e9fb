// Version 0 of given parameters: which tensors are taken, and what a source that does not match is refused with.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  encodeVersionState,
  initialParameters,
  initialVersionState,
  modelHash,
  parameterLayout,
  parseJob,
  parseModelSpec,
  startFrom,
} from '@starling-grid/model'
import {
  floatTensor,
  genesis,
  jobId,
  MistakesError,
  readSafetensors,
  type Safetensors,
  type StoredTensor,
} from '@starling-grid/protocol'

const spec = parseModelSpec({
  name: 'small',
  input: [1, 4, 4],
  layers: [
    { type: 'conv2d', name: 'conv', out: 2, kernel: 3 },
    { type: 'batchnorm2d', name: 'bn' },
    { type: 'flatten' },
    { type: 'linear', name: 'body', out: 5 },
    { type: 'linear', name: 'head', out: 3 },
  ],
})
const { entries } = parameterLayout(spec)
const SEED = 4

/** A source with other values for each tensor of the model; `change` adds, replaces and (undefined) takes away. */
function source(change: Readonly<Record<string, StoredTensor | undefined>> = {}, metadata = {}): Safetensors {
  const tensors = new Map<string, StoredTensor>()
  for (const [i, { name, shape, length }] of entries.entries())
    tensors.set(name, floatTensor(shape, new Float32Array(length).fill(i + 0.5)))
  for (const [name, tensor] of Object.entries(change))
    if (tensor === undefined) tensors.delete(name)
    else tensors.set(name, tensor)
  return { tensors, metadata }
}

const floats = (shape: readonly number[], value = 1): StoredTensor =>
  floatTensor(shape, new Float32Array(shape.reduce((product, size) => product * size, 1)).fill(value))

function refusal(from: Safetensors, except?: readonly string[]): string[] {
  try {
    startFrom(spec, { seed: SEED, ...(except ? { except: [...except] } : {}) }, from)
  } catch (error) {
    assert.ok(error instanceof MistakesError && error.code === 'job-invalid', String(error))
    return error.message.split('\n')
  }
  return []
}

test('each tensor of the model is taken, its running statistics too', () => {
  const { parameters, anew } = startFrom(spec, { seed: SEED }, source())
  assert.deepEqual(anew, [])
  for (const [i, { name, offset, length }] of entries.entries())
    assert.ok(
      parameters.subarray(offset, offset + length).every((value) => value === i + 0.5),
      name,
    )
})

test('what is left out begins from the seed, whatever the source has for it', () => {
  const seeded = initialParameters(spec, SEED)
  const tens = { 'head.weight': floats([10, 5]), 'head.bias': floats([10]) }
  for (const from of [source(), source(tens), source({ 'head.weight': undefined, 'head.bias': undefined })]) {
    const { parameters, anew } = startFrom(spec, { seed: SEED, except: ['head'] }, from)
    assert.deepEqual(anew, ['head.weight', 'head.bias'])
    for (const [i, { name, offset, length }] of entries.entries()) {
      const values = [...parameters.subarray(offset, offset + length)]
      const wanted: number[] = anew.includes(name)
        ? [...seeded.subarray(offset, offset + length)]
        : values.map(() => i + 0.5)
      assert.deepEqual(values, wanted, name)
    }
  }
})

test('a whole version is a source, without the state of its optimizer; so is what PyTorch counts beside', () => {
  const optimizer = { type: 'adam', lr: 0.1 } as const
  const version = genesis(jobId('other'), modelHash(spec), 9)
  const held = initialVersionState(spec, optimizer, 9)
  const bytes = encodeVersionState({ spec, layout: parameterLayout(spec), optimizer, version, ...held })
  assert.deepEqual(startFrom(spec, { seed: SEED }, readSafetensors(bytes)).parameters, held.parameters)
  const counter: StoredTensor = { dtype: 'I64', shape: [], data: new Uint8Array(8) }
  assert.deepEqual(refusal(source({ 'bn.num_batches_tracked': counter })), [])
})

const ANEW = 'name it under `from.except` to begin it from the seed'
const CASES: readonly {
  readonly what: string
  readonly from: Safetensors
  readonly except?: readonly string[]
  readonly refused: readonly string[]
}[] = [
  {
    what: 'a tensor that is missing',
    from: source({ 'body.bias': undefined }),
    refused: [`from.file: expected body.bias [5], got no such tensor; ${ANEW}`],
  },
  {
    what: 'another shape',
    from: source({ 'head.weight': floats([10, 5]), 'head.bias': floats([10]) }),
    refused: [
      `from.file: expected head.weight [3, 5], got [10, 5]; ${ANEW}`,
      `from.file: expected head.bias [3], got [10]; ${ANEW}`,
    ],
  },
  {
    what: 'as many elements in another shape',
    from: source({ 'body.weight': floats([8, 5]) }),
    refused: [`from.file: expected body.weight [5, 8], got [8, 5]; ${ANEW}`],
  },
  {
    what: 'a tensor that the model does not have',
    from: source({ 'classifier.0.weight': floats([2, 2]) }),
    refused: [
      'from.file: expected tensors of the model only, got classifier.0.weight [2, 2]; ' +
        'name it under `from.except` to leave it out',
    ],
  },
  {
    what: 'another name for the same tensor',
    from: source({ 'body.bias': undefined, 'bodi.bias': floats([5]) }),
    refused: [
      `from.file: expected body.bias [5], got no such tensor; rename \`bodi.bias\` to it, or ${ANEW}`,
      'from.file: expected tensors of the model only, got bodi.bias [5]; name it under `from.except` to leave it out',
    ],
  },
  {
    what: 'half precision',
    from: source({ 'body.bias': { dtype: 'F16', shape: [5], data: new Uint8Array(10) } }),
    refused: ['from.file: expected body.bias [5] of f32, got F16; store it as float32'],
  },
  {
    what: 'values that are no numbers',
    from: source({ 'body.bias': floats([5], Number.NaN) }),
    refused: [`from.file: expected body.bias [5] of finite numbers, got NaN or infinity; ${ANEW}`],
  },
  {
    what: 'an exception that is misspelt',
    from: source(),
    except: ['haed'],
    refused: ['from.except[0]: expected a tensor of the model or its start, got haed; did you mean `head`?'],
  },
  {
    what: 'an exception that ends in the midst of a name',
    from: source(),
    except: ['head.wei'],
    refused: ['from.except[0]: expected a tensor of the model or its start, got head.wei; did you mean `head.weight`?'],
  },
  {
    what: 'exceptions that leave nothing',
    from: source(),
    except: ['conv', 'bn', 'body', 'head'],
    refused: [
      'from.except: expected tensors of the model beside those that are left out, got none; ' +
        'leave `from` out to begin all from the seed',
    ],
  },
  {
    what: 'all mistakes at once',
    from: source({ 'conv.weight': undefined, 'body.bias': floats([6]), other: floats([1]) }),
    except: ['none'],
    refused: [
      'from.except[0]: expected a tensor of the model or its start, got none; leave it out',
      `from.file: expected conv.weight [2, 1, 3, 3], got no such tensor; ${ANEW}`,
      `from.file: expected body.bias [5], got [6]; ${ANEW}`,
      'from.file: expected tensors of the model only, got other [1]; name it under `from.except` to leave it out',
    ],
  },
]
for (const { what, from, except, refused } of CASES)
  test(`refused: ${what}`, () => assert.deepEqual(refusal(from, except), refused))

test('a source with a thousand strange tensors is refused in a hundred lines', () => {
  const strange = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`strange${i}`, floats([1])]))
  assert.equal(refusal(source(strange)).length, 100)
})

test('`from` names a file or a job, and a version only beside a job', () => {
  const job = {
    name: 'j',
    owner: 'o',
    purpose: '',
    model: { input: [4], layers: [{ type: 'linear', name: 'fc', out: 2 }] },
    dataset: { name: 'd' },
    optimizer: { type: 'sgd', lr: 0.1 },
    blockSamples: 1,
    batchBlocks: 1,
    stop: { epochs: 1 },
    seed: 1,
    mode: 'ring',
  }
  const said = (from: unknown): string => {
    try {
      parseJob({ ...job, from })
      return 'taken'
    } catch (error) {
      return String((error as Error).message)
    }
  }
  for (const good of [{ file: 'a' }, { job: 'a-1' }, { job: 'a-1', version: 3 }, { job: 'a-1', version: 'latest' }])
    assert.equal(said(good), 'taken')
  assert.match(said({}), /^from: expected one of `file` and `job`, got neither;/)
  assert.match(said({ file: 'a', job: 'b' }), /^from: expected one of `file` and `job`, got both;/)
  assert.match(said({ file: 'a', version: 3 }), /^from.version: expected no version beside `file`, got 3;/)
  assert.match(said({ job: 'A job' }), /^from.job: expected the id of a job, got "A job"/)
  assert.match(said({ job: 'a', version: 'newest' }), /^from.version: expected latest, or a whole number from 1/)
  assert.match(said({ file: 'a', except: [] }), /^from.except: expected a list of 1 to 1000 values, got \[\]/)
  assert.match(said({ file: 'a', except: [7] }), /^from.except\[0\]: expected text of 1 to 200 characters, got 7/)
})
