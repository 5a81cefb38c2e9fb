// Matrices that lie packed, on the GPU and on WebAssembly: unpacked with the reference's bits, whole and by the row,
// and a model with adapters that trains beside them with the bits that it has beside f32.
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { type ModelSpec, packRows, parameterCount, parseModelSpec, readRows, storeRows } from '@starling-grid/model'
import { floatOfHalf, type KernelCall, packedRow, type PackedStorage } from '@starling-grid/shaders'
import { createGpuExecutor, type Executor, ReferenceRunner } from '@starling-grid/volunteer'
import { openReferenceDecoder, openReferenceExecutor } from '@starling-grid/volunteer/language'
import {
  type AdapterLimits,
  expectClose,
  type GraphRunner,
  kernelGraph,
  noise,
  storedSource,
  type Tensor,
} from '@starling-grid/volunteer/testing'
import { createWasmDecoder, createWasmExecutor } from '@starling-grid/volunteer/wasm'
import { crampedDevice } from './fake-devices.ts'
import { openPlaces, readText } from './places.ts'

const { places, gpu } = await openPlaces()
const skip = gpu === undefined && 'no adapter'
after(() => gpu?.close())

const STORAGES: readonly PackedStorage[] = ['f16', 'int8', 'int4']
/** Groups that are whole, begun, and several; rows that end in the midst of a word, and of a byte. */
const SHAPES = [
  [5, 64],
  [7, 37],
  [3, 2],
  [70, 131],
] as const

/** With a row of zeros. */
function stored(rows: number, columns: number, storage: PackedStorage) {
  const values = noise(rows * columns, columns).map((value, i) => (i < columns ? 0 : value))
  const tensors = new Map(storeRows('w@0', values, { shape: [rows, columns], storage }))
  return {
    packed: packRows('w@0', tensors, { rows, columns, storage }),
    wanted: readRows('w@0', tensors, { length: rows * columns, columns }),
  }
}

async function unpacked(
  runner: GraphRunner,
  operand: (name: string) => Tensor,
  values: Readonly<Record<string, Int32Array>>,
): Promise<Float32Array> {
  const [y = new Float32Array()] = await runner.run({
    samples: 1,
    write: Object.entries(values).map(([name, value]) => [operand(name), value] as const),
    parts: ['forward'],
    read: [operand('y')],
  })
  runner.destroy()
  return y
}

const PLACES = [
  ...places,
  { name: 'the reference', skip: false, runner: async (graph: GraphOf) => new ReferenceRunner(graph, 1) } as const,
]
type GraphOf = ReturnType<typeof kernelGraph>['graph']

for (const { name, skip: missing, runner } of PLACES)
  for (const storage of STORAGES)
    test(`${name} unpacks ${storage} with the bits of what is stored`, { skip: missing }, async () => {
      for (const [rows, columns] of SHAPES) {
        const { packed, wanted } = stored(rows, columns, storage)
        const lengths = { packed: rows * packedRow(columns, storage).words, y: rows * columns }
        const whole = kernelGraph(lengths, (operand): KernelCall<Tensor> => ({
          kernel: 'unpack.forward',
          dims: { rows, columns, storage },
          operands: { packed: operand('packed'), y: operand('y') },
        }))
        const found = await unpacked(await runner(whole.graph, 1), whole.operand, { packed })
        assert.deepEqual(found.map(zeroless), wanted.map(zeroless), `${rows} × ${columns}`)
        // rows of tokens, of a piece of the table that begins at 10: ids outside it are another piece's
        const ids = Int32Array.from([rows + 9, 10, 3, 11, 10])
        const table = kernelGraph(
          { ...lengths, ids: ids.length, y: ids.length * columns },
          (operand): KernelCall<Tensor> => ({
            kernel: 'unpack.rows',
            dims: { tokens: ids.length, vocab: rows, channels: columns, first: 10, storage },
            operands: { ids: operand('ids'), packed: operand('packed'), y: operand('y') },
          }),
        )
        const taken = await unpacked(await runner(table.graph, 1), table.operand, { ids, packed })
        for (const [i, id] of ids.entries())
          if (id >= 10)
            assert.deepEqual(
              taken.slice(i * columns, (i + 1) * columns).map(zeroless),
              wanted.slice((id - 10) * columns, (id - 9) * columns).map(zeroless),
            )
      }
    })

/** −0 and 0 are one. */
function zeroless(value: number): number {
  return value === 0 ? 0 : value
}

for (const { name, skip: missing, runner } of PLACES)
  test(`${name} knows every half, tiny and infinite ones too`, { skip: missing }, async () => {
    const columns = 2 ** 16
    const halves = Uint16Array.from({ length: columns }, (_, i) => i).filter((half) => (half & 0x7fff) <= 0x7c00)
    const packed = new Int32Array(columns / 2)
    new Uint16Array(packed.buffer).set(halves)
    const { graph, operand } = kernelGraph({ packed: packed.length, y: columns }, (at): KernelCall<Tensor> => ({
      kernel: 'unpack.forward',
      dims: { rows: 1, columns, storage: 'f16' },
      operands: { packed: at('packed'), y: at('y') },
    }))
    const found = await unpacked(await runner(graph, 1), operand, { packed })
    assert.deepEqual(
      found.subarray(0, halves.length).map(zeroless),
      Float32Array.from(halves, floatOfHalf).map(zeroless),
    )
  })

const CONTEXT = 7
const VOCAB = 200
const llama = (form: object): ModelSpec =>
  parseModelSpec({
    input: [CONTEXT],
    layers: [
      {
        type: 'causal_lm',
        config: {
          model_type: 'llama',
          vocab_size: VOCAB,
          num_attention_heads: 6,
          num_key_value_heads: 2,
          attention_bias: true,
          tie_word_embeddings: true,
          ...form,
        },
        lora: { rank: 3, alpha: 4 },
      },
    ],
    ignore_index: -100,
  })
const SPEC = llama({ hidden_size: 36, num_hidden_layers: 1, intermediate_size: 33 })
/** Most of it are matrices that no table is as large as. */
const WIDE = llama({ hidden_size: 96, num_hidden_layers: 3, intermediate_size: 320 })
const source = (storage: PackedStorage, spec = SPEC) =>
  storedSource(spec, storage, (name, length) =>
    noise(length, name.length).map((value) => (name.includes('norm') ? 1 : 0) + 0.3 * value),
  )
const IDS = Int32Array.from({ length: 2 * CONTEXT }, (_, i) => (53 * i + 1) % VOCAB)
const STEPS = 3

/** Losses of some steps, and what the adapters became. */
async function trained(executor: Executor): Promise<{ losses: number[]; parameters: Float32Array }> {
  const parameters = noise(parameterCount(SPEC), 99).map((value) => 0.3 * value)
  const gradient = new Float32Array(parameters.length)
  const y = IDS.map((id, i) => (i % 3 === 0 ? -100 : (id + 2) % VOCAB))
  const losses: number[] = []
  for (let step = 0; step < STEPS; step++) {
    executor.loadParameters(parameters)
    const { lossSum } = await executor.gradient({ samples: 2, x: IDS, y }, gradient)
    losses.push(lossSum)
    for (const [i, value] of gradient.entries()) parameters[i] = (parameters[i] ?? 0) - 0.01 * value
  }
  executor.destroy()
  return { losses, parameters }
}

/** Tables of which a binding holds less than half: they are read in pieces. */
const LOW: AdapterLimits = {
  maxStorageBufferBindingSize: 16 * 1024,
  maxBufferSize: 2 ** 24,
  maxStorageBuffersPerShaderStage: 8,
}

for (const [name, open] of [
  ['the reference', openReferenceExecutor],
  ['WebAssembly', createWasmExecutor],
] as const)
  for (const storage of STORAGES)
    test(`adapters beside ${storage} train on ${name} with the bits that they have beside f32`, async () => {
      const frozen = source(storage)
      const [packed, plain] = [await open(SPEC, { frozen, pack: true }), await open(SPEC, { frozen })]
      assert.deepEqual(await trained(packed), await trained(plain))
    })

const PIECES = { frozen: source('int4'), limits: LOW, recompute: true, maxMicroBatch: 1 }

async function assertEqualBits(packed: Executor, plain: Executor): Promise<void> {
  const x = IDS.subarray(0, CONTEXT)
  for (const executor of [packed, plain]) executor.loadParameters(new Float32Array(parameterCount(SPEC)))
  assert.deepEqual(await packed.predict(x, 1), await plain.predict(x, 1))
  assert.deepEqual(await trained(packed), await trained(plain))
}

test('… and where WebAssembly reads tables in pieces and computes values again', async () =>
  assertEqualBits(await createWasmExecutor(SPEC, { ...PIECES, pack: true }), await createWasmExecutor(SPEC, PIECES)))

test('a GPU without memory for f32 keeps the base model packed, which it says, with equal bits', { skip }, async () => {
  assert.ok(gpu)
  const options = { ...PIECES, adapter: gpu.description, spec: SPEC, readText }
  const said: string[] = []
  const device = crampedDevice(gpu.device, { buffers: 3, times: 1 })
  const packed = await createGpuExecutor({ ...options, device, say: (text) => said.push(text) })
  assert.match(said.join(), /no memory for 1 samples at a time; keeping the base model in int4/)
  await assertEqualBits(packed, await createGpuExecutor({ ...options, device: gpu.device }))
})

test('WebAssembly without memory for f32 keeps the base model packed, and says so', async () => {
  const said: string[] = []
  const frozen = source('int8', WIDE)
  const options = { frozen, maxMicroBatch: 1, say: (text: string) => said.push(text) }
  const real = WebAssembly.Memory
  let most = Infinity
  class Cramped extends real {
    constructor(wanted: WebAssembly.MemoryDescriptor) {
      if (wanted.initial >= most) throw new RangeError('could not allocate memory')
      most = Math.min(most, wanted.initial)
      super(wanted)
    }
  }
  WebAssembly.Memory = Cramped as typeof real
  try {
    const [plain, packed] = [await createWasmExecutor(WIDE, options), await createWasmExecutor(WIDE, options)]
    assert.match(said.join(), /got none; .* Keeping the base model in int8/)
    const x = IDS.subarray(0, CONTEXT)
    for (const executor of [packed, plain]) executor.loadParameters(noise(parameterCount(WIDE), 1))
    assert.deepEqual(await packed.predict(x, 1), await plain.predict(x, 1))
  } finally {
    WebAssembly.Memory = real
  }
})

test('a text is gone on with beside packed matrices as beside f32', async () => {
  const decoders = [
    await openReferenceDecoder(SPEC, { context: CONTEXT, frozen: source('int8') }),
    await openReferenceDecoder(SPEC, { context: CONTEXT, frozen: source('int8'), pack: true }),
    await createWasmDecoder(SPEC, { context: CONTEXT, frozen: source('int8'), pack: true }),
    await createWasmDecoder(SPEC, { context: CONTEXT, frozen: source('int8'), pack: true, limits: LOW }),
  ]
  const logits: Float32Array[] = []
  for (const decoder of decoders) {
    decoder.loadParameters(noise(parameterCount(SPEC), 3))
    logits.push(await decoder.logitsAfter([...IDS.subarray(0, 5)]))
    decoder.destroy()
  }
  const [plain = new Float32Array(), packed, ...onWasm] = logits
  assert.deepEqual(packed, plain)
  for (const found of onWasm) expectClose(found, plain, 1e-5, 'logits')
})
