// A trained model taken to other programs: every operator as ONNX and as a PyTorch program, compared with our own
// arithmetic. The program runs where torch is; elsewhere its syntax alone is checked, and the test says so.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { onnxModel, pytorchProgram } from '@starling-grid/client'
import {
  exportModel,
  gpt,
  initialParameters,
  layerShapes,
  lenet5,
  mlp,
  type ModelFile,
  type ModelSpec,
  type OperatorLayer,
  parameterLayout,
  parseModelSpec,
  randomWords,
  readModelFile,
  resnet,
  takesTokens,
} from '@starling-grid/model'
import { type ModelSignature, versionId } from '@starling-grid/protocol'
import { createReferenceExecutor } from '@starling-grid/volunteer'
import * as ort from 'onnxruntime-web'

/** What two ways to add up f32 may differ by. */
const MOST_OFF = 1e-4
const SAMPLES = 3
const folder = await mkdtemp(join(tmpdir(), 'starling-exports-'))
after(() => rm(folder, { recursive: true, force: true }))

const conv = (name: string, out: number, more: object = {}) => ({
  type: 'conv2d',
  name,
  out,
  kernel: 3,
  padding: 1,
  ...more,
})
const pictures = parseModelSpec({
  name: 'pictures',
  input: [3, 8, 8],
  layers: [
    conv('stem', 8),
    { type: 'batchnorm2d', name: 'norm' },
    { type: 'relu' },
    { type: 'residual', layers: [conv('a', 8, { groups: 4 }), { type: 'silu' }] },
    { type: 'parallel', combine: 'concat', branches: [[conv('left', 4)], [conv('right', 4, { bias: false })]] },
    { type: 'groupnorm', name: 'groups', groups: 2 },
    { type: 'leaky_relu', negative_slope: 0.2 },
    { type: 'maxpool2d', kernel: 3, stride: 2, padding: 1 },
    { type: 'avgpool2d', kernel: 3, stride: 1, padding: 1 },
    { type: 'gelu' },
    { type: 'dropout', p: 0.5 },
    { type: 'parallel', combine: 'add', branches: [[{ type: 'tanh' }], [{ type: 'sigmoid' }]] },
    { type: 'globalavgpool' },
    { type: 'linear', name: 'hidden', out: 12 },
    { type: 'gelu_tanh' },
    { type: 'layernorm', name: 'ln' },
    { type: 'rmsnorm', name: 'rms' },
    { type: 'linear', name: 'head', out: 5, bias: false },
    { type: 'softmax' },
  ],
})
/** The compiler finds one that is missing. */
const OPERATORS: Readonly<Record<OperatorLayer['type'], true>> = {
  linear: true,
  conv2d: true,
  flatten: true,
  globalavgpool: true,
  maxpool2d: true,
  avgpool2d: true,
  dropout: true,
  batchnorm2d: true,
  layernorm: true,
  rmsnorm: true,
  groupnorm: true,
  embedding: true,
  positions: true,
  transpose: true,
  class_token: true,
  first_token: true,
  upsample: true,
  rotary: true,
  swiglu: true,
  scale: true,
  attention: true,
  add: true,
  concat: true,
  relu: true,
  leaky_relu: true,
  gelu: true,
  gelu_tanh: true,
  silu: true,
  tanh: true,
  sigmoid: true,
  softmax: true,
}
const decoder = (norm: 'layernorm' | 'rmsnorm', tied: boolean) =>
  gpt({ blocks: 2, heads: 2, channels: 8, context: 6, vocab: 11, norm, tied_head: tied } as Parameters<typeof gpt>[0])
const language = (family: string, more: object) =>
  parseModelSpec({
    input: [6],
    layers: [
      {
        type: 'causal_lm',
        config: {
          model_type: family,
          vocab_size: 11,
          hidden_size: 12,
          num_hidden_layers: 2,
          num_attention_heads: 4,
          num_key_value_heads: 2,
          head_dim: 6,
          intermediate_size: 10,
          ...more,
        },
      },
    ],
  })
const vision = (pool: 'class' | 'mean') =>
  parseModelSpec({
    input: [2, 6, 9],
    layers: [{ type: 'vit', patch: 3, channels: 10, blocks: 2, heads: 2, classes: 5, pool }],
  })
/** A path down to a smaller image and up again, beside one that stays. */
const unet = parseModelSpec({
  input: [2, 6, 4],
  loss: 'mse',
  layers: [
    conv('in', 4),
    {
      type: 'parallel',
      combine: 'concat',
      branches: [[], [{ type: 'maxpool2d', kernel: 2 }, conv('deep', 6), { type: 'relu' }, { type: 'upsample' }]],
    },
    conv('out', 1),
  ],
})
const MODELS: Readonly<Record<string, ModelSpec>> = {
  'a vision transformer with a class token': vision('class'),
  'a vision transformer with a mean over tokens': vision('mean'),
  'an image to an image': unet,
  'an mlp': mlp({ input: [1, 6, 6], hidden: [8], classes: 4 }),
  lenet: lenet5(),
  'a residual network': resnet({ depth: 8, channels: 4 }),
  pictures,
  'a decoder with a tied head': decoder('layernorm', true),
  'a decoder without': decoder('rmsnorm', false),
  'a published language model with norms of queries and keys': language('qwen3', { tie_word_embeddings: true }),
  'a published language model with biases and a head of its own': language('qwen2', {
    num_key_value_heads: 1,
    rope_scaling: { rope_type: 'linear', factor: 4 },
  }),
  'a gated branch, scaled': parseModelSpec({
    input: [6],
    layers: [
      {
        type: 'parallel',
        combine: 'swiglu',
        branches: [[{ type: 'linear', name: 'gate', out: 5 }], [{ type: 'linear', name: 'up', out: 5 }]],
      },
      { type: 'scale', factor: 0.25 },
    ],
  }),
}

/** No value is one that hides a mistake: scales of 1 and means of 0 get other values. */
function fileOf(spec: ModelSpec): { readonly model: ModelFile; readonly bytes: Uint8Array } {
  const layout = parameterLayout(spec)
  const parameters = initialParameters(spec, 5)
  const words = randomWords(9, 1)
  for (let i = 0; i < parameters.length; i++) {
    const part = words(i) / 2 ** 32
    const more = i < layout.trained ? 0.1 * (part - 0.5) : 0.3 * part // variances stay above 0
    parameters[i] = (parameters[i] ?? 0) + more
  }
  const signature: ModelSignature = {
    inputShape: [...spec.input],
    inputScale: 1,
    classes: layerShapes(spec).at(-1)?.y.at(-1) ?? 1,
  }
  const bytes = exportModel({ spec, layout, parameters, signature, version: { v: 1, id: versionId('a'.repeat(64)) } })
  return { model: readModelFile(bytes), bytes }
}

function inputOf(spec: ModelSpec): Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer> {
  const words = randomWords(4, 2)
  const length = SAMPLES * spec.input.reduce((product, size) => product * size, 1)
  return takesTokens(spec)
    ? Int32Array.from({ length }, (_, i) => words(i) % 11)
    : Float32Array.from({ length }, (_, i) => words(i) / 2 ** 31 - 1)
}

async function reference({ spec, parameters }: ModelFile): Promise<Float32Array> {
  const executor = createReferenceExecutor(spec)
  executor.loadParameters(parameters)
  try {
    return await executor.predict(inputOf(spec), SAMPLES)
  } finally {
    executor.destroy()
  }
}

function requireClose(found: ArrayLike<number>, wanted: Float32Array): void {
  assert.equal(found.length, wanted.length)
  const off = wanted.reduce((most, value, i) => Math.max(most, Math.abs(value - (found[i] ?? Number.NaN))), 0)
  assert.ok(off <= MOST_OFF, `outputs differ by up to ${off}`)
}

test('the models of these tests have every operator', () => {
  const covered = new Set(Object.values(MODELS).flatMap((spec) => layerShapes(spec).map(({ layer }) => layer.type)))
  assert.deepEqual([...covered].sort(), Object.keys(OPERATORS).sort())
})

const [PYTHON, WITH_TORCH] = ['pass', 'import torch'].map((program) =>
  ['python3', '/usr/bin/python3'].find((command) => runs(command, ['-c', program])),
)

for (const [name, spec] of Object.entries(MODELS)) {
  test(`ONNX Runtime answers like the reference: ${name}`, async () => {
    const { model } = fileOf(spec)
    const session = await ort.InferenceSession.create(onnxModel(model), { executionProviders: ['wasm'] })
    const [x, dims] = [inputOf(spec), [SAMPLES, ...spec.input]]
    const input =
      x instanceof Int32Array
        ? new ort.Tensor('int64', BigInt64Array.from(x, BigInt), dims)
        : new ort.Tensor('float32', x, dims)
    const { output } = await session.run({ input })
    assert.ok(output !== undefined)
    assert.deepEqual(output.dims, [SAMPLES, ...(layerShapes(spec).at(-1)?.y ?? [])])
    requireClose(output.data as Float32Array, await reference(model))
    await session.release()
  })

  test(`the PyTorch program has every parameter, and answers like the reference where torch is: ${name}`, async (t) => {
    const { model } = fileOf(spec)
    const program = pytorchProgram(model, 'model.safetensors')
    for (const { name: key } of parameterLayout(spec).entries)
      assert.ok(program.includes(`self.hold(${JSON.stringify(key)}, `), `${key} is held`)
    assert.equal(program.match(/^ {8}v\d+ = /gm)?.length, layerShapes(spec).length)
    if (WITH_TORCH === undefined) return t.skip('no torch here: the program is compiled, and not run')
    torchAnswers ??= answersOfTorch(WITH_TORCH)
    requireClose((await torchAnswers)[name] ?? [], await reference(model))
  })
}

let torchAnswers: Promise<Readonly<Record<string, number[]>>> | undefined

/** Of all models by one process: torch takes seconds to start. */
async function answersOfTorch(python: string): Promise<Readonly<Record<string, number[]>>> {
  const asked = Object.entries(MODELS).map(([name, spec], i) => ({
    name,
    module: `answers_${i}`,
    shape: [SAMPLES, ...spec.input],
    x: [...inputOf(spec)],
  }))
  for (const { name, module } of asked) {
    const file = fileOf(MODELS[name] ?? assert.fail(name))
    await writeFile(join(folder, `${module}.py`), pytorchProgram(file.model, `${module}.safetensors`))
    await writeFile(join(folder, `${module}.safetensors`), file.bytes)
  }
  await writeFile(join(folder, 'asked.json'), JSON.stringify(asked))
  const program = [
    'import importlib, json, torch',
    'def answer(one):',
    '    model = importlib.import_module(one["module"])',
    '    x = torch.tensor(one["x"]).reshape(one["shape"])',
    '    return model.load()(model.prepare(x)).flatten().tolist()',
    'print(json.dumps({one["name"]: answer(one) for one in json.load(open("asked.json"))}))',
  ].join('\n')
  return JSON.parse(execFileSync(python, ['-c', program], { cwd: folder, encoding: 'utf8' }))
}

test('the PyTorch program of every model compiles', async (t) => {
  if (PYTHON === undefined) return t.skip('no python3 here: the structure alone is tested')
  const programs = Object.values(MODELS).map((spec) => pytorchProgram(fileOf(spec).model, 'model.safetensors'))
  const files = programs.map((_, i) => join(folder, `program_${i}.py`))
  for (const [i, file] of files.entries()) await writeFile(file, programs[i] ?? '')
  execFileSync(PYTHON, ['-m', 'py_compile', ...files])
})

test('names of a model end no literal of the program, and may be those of a module', async (t) => {
  const spec = parseModelSpec({ name: 'm', input: [2], layers: [{ type: 'linear', name: 'type', out: 2 }] })
  const { model } = fileOf(spec)
  const classNames = ['"""', '"); import antigravity\n']
  const program = pytorchProgram({ ...model, signature: { ...model.signature, classNames } }, 'm.safetensors')
  if (PYTHON === undefined) return t.skip('no python3 here: the program was not read')
  await writeFile(join(folder, 'names.py'), program)
  const ask = [
    'import ast, json',
    'tree = ast.parse(open("names.py").read())',
    'imports = [node.names[0].name for node in ast.walk(tree) if isinstance(node, ast.Import)]',
    'calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "json.loads"]',
    'loads = [n.args[0].value for n in calls if isinstance(n.args[0], ast.Constant)]',
    'print(json.dumps({"imports": imports, "signature": json.loads(loads[0])}))',
  ].join('\n')
  const read = JSON.parse(execFileSync(PYTHON, ['-c', ask], { cwd: folder, encoding: 'utf8' }))
  assert.deepEqual(read.signature.classNames, classNames)
  assert.deepEqual([...read.imports].sort(), [
    'json',
    'numpy',
    'os',
    'struct',
    'sys',
    'torch',
    'torch.nn',
    'torch.nn.functional',
  ])
})

function runs(command: string, args: readonly string[]): boolean {
  try {
    execFileSync(command, args, { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}
