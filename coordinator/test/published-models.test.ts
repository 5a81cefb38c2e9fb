// Folders of published language models, imported: every way in which they are stored, what is refused, and examples of
// conversations in their tokens.
import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fixedEntries, IGNORED, packRows, parseModelSpec, rowsOf, type Storage, storeRows } from '@starling-grid/model'
import { isGridError, type Sha256 } from '@starling-grid/protocol'
import { runReference } from '@starling-grid/shaders'
import { openBaseModel } from '@starling-grid/volunteer/language'
import { publishedModel, publishedTensors, SMALL_LLAMA } from '@starling-grid/volunteer/testing'
import { ChatTokens } from '../src/datasets/chat-tokens.ts'
import { packed } from '../src/datasets/packed-samples.ts'
import { importModel } from '../src/models/import-model.ts'
import { type ImportedModel, ModelCatalog } from '../src/models/model-catalog.ts'

const root = await mkdtemp(join(tmpdir(), 'starling-models-'))
after(() => rm(root, { recursive: true, force: true }))
const watch = { now: () => '2026-01-01T00:00:00Z' }
let made = 0

async function folderOf(options: Parameters<typeof publishedModel>[0] = {}, change: Record<string, string> = {}) {
  const folder = join(root, `published-${made++}`)
  await mkdir(folder)
  for (const [name, content] of publishedModel(options)) await writeFile(join(folder, name), content)
  for (const [name, content] of Object.entries(change)) await writeFile(join(folder, name), content)
  return folder
}

async function imported(folder: string, storage: Storage = 'f32') {
  const catalog = new ModelCatalog(join(root, `data-${made++}`))
  const model = await importModel({ name: 'small', folder, storage }, catalog, watch)
  return { model, catalog }
}

/** Where a volunteer reads what it computes with. */
async function sourceOf(model: ImportedModel, catalog: ModelCatalog, config: object = SMALL_LLAMA) {
  const blobs = await catalog.blobs()
  const spec = parseModelSpec({
    input: [4],
    layers: [{ type: 'causal_lm', config, lora: {} }],
    base: model.manifest.sha256,
  })
  const cache = { get: async () => undefined, put: async () => undefined }
  const fetchBytes = async (name: Sha256): Promise<Uint8Array> => {
    const bytes = await blobs.get(name)
    assert.ok(bytes)
    return bytes
  }
  const source = await openBaseModel(spec, { fetchBytes, cache })
  assert.ok(source)
  return { source, entries: fixedEntries(spec).filter(({ kind }) => kind === 'frozen') }
}

/** What a volunteer computes with: name → values. */
async function frozenOf(...asked: Parameters<typeof sourceOf>) {
  const { source, entries } = await sourceOf(...asked)
  return new Map(await Promise.all(entries.map(async (entry) => [entry, await source.read(entry.name)] as const)))
}

/** ‖ours − published‖ / ‖published‖ over all tensors that are not transposed. */
async function distance(storage: Storage, options: Parameters<typeof publishedModel>[0] = {}): Promise<number> {
  const { model, catalog } = await imported(await folderOf(options), storage)
  const wanted = publishedTensors(SMALL_LLAMA)
  let [apart, norm] = [0, 0]
  for (const [{ name }, values] of await frozenOf(model, catalog)) {
    const published = wanted.get(name)?.values ?? new Float32Array()
    assert.equal(values.length, published.length, name)
    for (const [i, value] of values.entries()) apart += (value - (published[i] ?? 0)) ** 2
    for (const value of published) norm += value ** 2
  }
  return Math.sqrt(apart / norm)
}

test('a folder of one file or of several, in each float type, becomes what volunteers compute with', async () => {
  assert.equal(await distance('f32'), 0)
  assert.equal(await distance('f32', { files: 3 }), 0)
  assert.ok((await distance('f32', { dtype: 'F16' })) < 5e-4)
  assert.ok((await distance('f32', { dtype: 'BF16' })) < 8e-3)
})

test('half precision, eight and four bits lose what they must and no more', async () => {
  const f16 = await distance('f16')
  const int8 = await distance('int8')
  const int4 = await distance('int4')
  assert.ok(f16 > 0 && f16 < 5e-4, String(f16))
  assert.ok(int8 > f16 && int8 < 1e-2, String(int8))
  assert.ok(int4 > int8 && int4 < 0.15, String(int4))
})

test('what is stored in few bits is read as it is, too, and unpacked it has the same bits', async () => {
  const { model, catalog } = await imported(await folderOf({}))
  assert.equal((await sourceOf(model, catalog)).source.packed, undefined)
  for (const storage of ['f16', 'int8', 'int4'] as const) {
    const stored = await imported(await folderOf({}), storage)
    const { source, entries } = await sourceOf(stored.model, stored.catalog)
    const { packed } = source
    assert.equal(packed?.storage, storage)
    for (const entry of entries.filter(({ shape }) => shape.length > 1)) {
      const y = new Float32Array(entry.length)
      const operands = { packed: await packed.read(entry.name), y }
      runReference({ kernel: 'unpack.forward', dims: { ...rowsOf(entry), storage }, operands }, 1)
      assert.deepEqual(y, await source.read(entry.name), entry.name)
    }
  }
})

test('a matrix that a shard holds in another storage than the first is refused by its name', () => {
  const tensors = new Map(storeRows('a.weight@0', new Float32Array(12), { shape: [3, 4], storage: 'f16' }))
  assert.throws(
    () => packRows('a.weight@0', tensors, { rows: 3, columns: 4, storage: 'int8' }),
    (error) =>
      isGridError(error) && error.code === 'shard-corrupt' && /12 values of a\.weight@0 in int8/.test(error.message),
  )
})

const GPT2 = { model_type: 'gpt2', vocab_size: 40, n_embd: 8, n_layer: 1, n_head: 2, n_positions: 16 }

test('matrices that GPT-2 publishes as (in, out) are turned, and names without their beginning are known', async () => {
  const folder = await folderOf({ config: GPT2, bare: true })
  const { model, catalog } = await imported(folder)
  const frozen = await frozenOf(model, catalog, GPT2)
  const [entry, values] = [...frozen].find(([{ name }]) => name.endsWith('c_attn.weight')) ?? []
  assert.ok(entry && values)
  assert.deepEqual(entry.shape, [24, 8])
  const published = publishedTensors(GPT2).get(entry.name)
  assert.deepEqual(published?.shape, [8, 24])
  assert.equal(values[1 * 8 + 5], published?.values[5 * 24 + 1])
})

async function refusal(options: Parameters<typeof publishedModel>[0], change: Record<string, string> = {}) {
  try {
    await imported(await folderOf(options, change))
    return 'taken'
  } catch (error) {
    assert.ok(isGridError(error), String(error))
    return error.message
  }
}

test('a folder that is not what its config.json says is refused with the name of what is wrong', async () => {
  const other = JSON.stringify({ ...SMALL_LLAMA, hidden_size: 40 })
  assert.match(
    await refusal({}, { 'config.json': other }),
    /expected model\.embed_tokens\.weight \[262, 40\].*\[262, 32\]/,
  )
  assert.match(await refusal({}, { 'config.json': '{"model_type":"mamba"}' }), /one of llama, qwen2, qwen3, gpt2/)
  assert.match(await refusal({}, { 'model.safetensors': 'no tensors' }), /model\.safetensors: expected/)
  assert.match(
    await refusal({ files: 2 }, { 'model.safetensors.index.json': '{"weight_map":{"a":"../b"}}' }),
    /which is not there/,
  )
  await assert.rejects(imported(join(root, 'nowhere')), /config\.json/)
})

test('a name is taken once, and a deleted model frees what no other has', async () => {
  const { model, catalog } = await imported(await folderOf())
  await assert.rejects(
    importModel({ name: 'small', folder: await folderOf(), storage: 'f32' }, catalog, watch),
    /expected the name of a new model, got small/,
  )
  const blobs = await catalog.blobs()
  assert.ok(await blobs.has(model.manifest.sha256))
  await catalog.delete('small', () => false)
  assert.equal(await blobs.has(model.manifest.sha256), false)
  assert.deepEqual(await catalog.names(), [])
})

async function chat(): Promise<ChatTokens> {
  const { tokenizer = '', chatTemplate, special, ends } = (await imported(await folderOf())).model
  return new ChatTokens({ tokenizer, chatTemplate, special, ends })
}

const bytes = (text: string): number[] => [...new TextEncoder().encode(text)]

test('of a conversation the answers are learned, with what ends them', async () => {
  const tokens = await chat()
  const asked = { role: 'user', content: 'hi' }
  const marked = tokens.conversation([asked, { role: 'assistant', content: 'yo' }])
  // <|im_start|> is 258, <|im_end|> 257
  const before = [258, ...bytes('user\nhi'), 257, 10, 258, ...bytes('assistant\n')]
  assert.deepEqual(marked.tokens, [...before, ...bytes('yo'), 257, 10])
  assert.deepEqual(
    marked.learned,
    marked.tokens.map((_, i) => i >= before.length),
  )
  const twice = tokens.conversation([
    asked,
    { role: 'assistant', content: 'a' },
    asked,
    { role: 'assistant', content: 'b' },
  ])
  assert.equal(twice.learned.filter(Boolean).length, 6)
})

test('a prompt is not learned, its completion and a text are; other rows are refused', async () => {
  const tokens = await chat()
  const row = tokens.row({ prompt: 'ab', completion: 'c' })
  assert.deepEqual(
    [row.tokens, row.learned],
    [
      [97, 98, 99, 257],
      [false, false, true, true],
    ],
  )
  assert.deepEqual(tokens.row({ text: 'a' }).learned, [true, true])
  assert.throws(() => tokens.row({ question: 'a' }), /`messages`, `prompt` and `completion`, or `text`, got none/)
  assert.throws(() => tokens.row({ messages: [{ role: 'user', content: 'a' }] }), /an answer of the assistant/)
})

test('short examples share a sample, long ones are cut, and a target is the next learned token', () => {
  const example = (length: number, from: number) => ({
    tokens: Array.from({ length }, (_, i) => 10 * length + i),
    learned: Array.from({ length }, (_, i) => i >= from),
  })
  const { count, x, y, cut, dropped } = packed([example(4, 2), example(3, 1), example(9, 1), example(3, 3)], {
    context: 5,
    pack: true,
  })
  assert.deepEqual({ count, cut, dropped }, { count: 2, cut: 1, dropped: 1 })
  assert.deepEqual([...x.subarray(0, 5)], [40, 41, 42, 30, 31])
  assert.deepEqual([...y.subarray(0, 5)], [IGNORED, 42, 43, 31, 32])
  assert.deepEqual([...x.subarray(5)], [90, 91, 92, 93, 94])
  const apart = packed([example(4, 2), example(3, 1)], { context: 5, pack: false })
  assert.equal(apart.count, 2)
  assert.deepEqual([...apart.y.subarray(5)], [31, 32, IGNORED, IGNORED, IGNORED])
})
