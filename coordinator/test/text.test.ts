// A text file as a dataset, from the file to the batch that a volunteer makes of it.
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { gpt, modelHash, parseModelSpec } from '@starling-grid/model'
import {
  DatasetManifestSchema,
  isGridError,
  jobId,
  type JobTerms,
  parse,
  readSafetensors,
  samplesIn,
  type ErrorCode,
  type Sha256,
  sha256Name,
  trainingBlock,
  validationBlock,
} from '@starling-grid/protocol'
import { Batches, Shards } from '@starling-grid/volunteer'
import { memoryBlobs } from '../src/blobs/memory.ts'
import { Catalog } from '../src/datasets/catalog.ts'
import { importDataset } from '../src/datasets/import.ts'

const folder = await mkdtemp(join(tmpdir(), 'starling-text-'))
after(() => rm(folder, { recursive: true }))

const catalog = new Catalog(folder)
const CONTEXT = 8
/** 'a' to 'z' over and over, so that each character tells the next one. */
const ALPHABET = Array.from({ length: 26 }, (_, i) => String.fromCharCode(97 + i)).join('')

async function file(content: string | Uint8Array): Promise<string> {
  const path = join(folder, `${crypto.randomUUID()}.txt`)
  await writeFile(path, content)
  return path
}

const model = (vocab: number, context = CONTEXT) => gpt({ blocks: 1, heads: 1, channels: 4, context, vocab })

async function importText(
  content: string,
  {
    vocab = 26,
    context = CONTEXT,
    windowsPerEpoch,
  }: { vocab?: number; context?: number; windowsPerEpoch?: number } = {},
) {
  const blobs = memoryBlobs()
  const dataset = {
    source: 'text',
    path: await file(content),
    tokens: 'characters',
    ...(windowsPerEpoch === undefined ? {} : { windowsPerEpoch }),
  } as const
  const manifest = await importDataset(dataset, model(vocab, context), { blobs, catalog })
  parse(DatasetManifestSchema, manifest, 'the manifest')
  const bytesOf = async (name: Sha256) => (await blobs.get(name)) ?? new Uint8Array()
  return { manifest, bytesOf }
}

async function refusedWith(code: ErrorCode, pattern: RegExp, importing: Promise<unknown>): Promise<void> {
  await assert.rejects(importing, (error) => {
    assert.ok(isGridError(error) && error.code === code, String(error))
    assert.match(error.message, pattern)
    return true
  })
}

function termsOf(dataset: JobTerms['dataset'], vocab: number): JobTerms {
  const spec = model(vocab)
  return {
    id: jobId('text-1'),
    name: 'text',
    owner: 'tests',
    purpose: '',
    model: spec,
    modelHash: sha256Name(modelHash(spec)),
    dataset,
    optimizer: { type: 'sgd', lr: 1 },
    blockSamples: 4,
    batchBlocks: 2,
    epochs: 2,
    seed: 7,
  }
}

test('the vocabulary is the sorted characters, nine tenths train and a tenth validates', async () => {
  const { manifest, bytesOf } = await importText('zebra né 🦓'.repeat(40), { vocab: 40 })
  assert.equal(manifest.vocabulary, ' abenrzé🦓')
  assert.deepEqual([manifest.classes, manifest.inputShape], [9, [CONTEXT]])
  const [shard] = manifest.train
  assert.ok(shard)
  const tokens = readSafetensors(await bytesOf(shard.sha256)).tensors.get('tokens')
  assert.ok(tokens)
  assert.deepEqual([...tokens.data.subarray(0, 12)], [6, 0, 3, 0, 2, 0, 5, 0, 1, 0, 0, 0])
  assert.equal(tokens.shape[0], 360)
})

test('each target is the token after its input, in every epoch and in validation, and epochs differ', async () => {
  const { manifest, bytesOf } = await importText(ALPHABET.repeat(60))
  const batches = new Batches(
    termsOf(manifest, 26),
    new Shards(manifest, bytesOf, { get: async () => undefined, put: async () => undefined }),
    model(26),
  )
  const read = async (blocks: Parameters<Batches['of']>[0]) => {
    const { samples, x, y } = await batches.of(blocks)
    assert.equal(x.length, samples * CONTEXT)
    assert.ok(x instanceof Int32Array)
    x.forEach((token, i) => assert.equal(y[i], (token + 1) % 26))
    return x
  }
  const first = await read([trainingBlock(0, 0), trainingBlock(0, 3)])
  assert.deepEqual(await read([trainingBlock(0, 0), trainingBlock(0, 3)]), first)
  assert.notDeepEqual(await read([trainingBlock(1, 0), trainingBlock(1, 3)]), first)
  assert.deepEqual(await read([validationBlock(1)]), await read([validationBlock(1)]))
  assert.equal((await batches.trial(3)).samples, 3)
})

test('windows lie side by side unless the job says how many an epoch has', async () => {
  const side = await importText(ALPHABET.repeat(60))
  assert.equal(samplesIn(side.manifest.train), Math.floor((26 * 60 * 0.9 - CONTEXT) / CONTEXT))
  assert.equal(samplesIn((await importText(ALPHABET.repeat(60), { windowsPerEpoch: 12 })).manifest.train), 12)
})

test('a long text is cut into several shards that together hold every window', async () => {
  const { manifest, bytesOf } = await importText(ALPHABET.repeat(50_000))
  assert.equal(manifest.train.length, 3)
  assert.equal(samplesIn(manifest.train), Math.floor((26 * 50_000 * 0.9 - CONTEXT) / CONTEXT))
  const lengths = await Promise.all(
    manifest.train.map(
      async ({ sha256 }) => readSafetensors(await bytesOf(sha256)).tensors.get('tokens')?.shape[0] ?? 0,
    ),
  )
  assert.equal(
    lengths.reduce((sum, length) => sum + length - CONTEXT, 0),
    26 * 50_000 * 0.9 - CONTEXT,
  )
})

test('what cannot be a text of this model is refused with what was found', async () => {
  const text = (path: string) => ({ source: 'text', path, tokens: 'characters' }) as const
  const import_ = (path: string, spec = model(26)) => importDataset(text(path), spec, { blobs: memoryBlobs(), catalog })
  await refusedWith('dataset-unreadable', /nowhere\.txt: cannot be read/, import_(join(folder, 'nowhere.txt')))
  await refusedWith('dataset-unreadable', /is not a file/, import_(folder))
  await refusedWith('dataset-unreadable', /is not UTF-8/, import_(await file(Uint8Array.of(0xff, 0xfe, 0x41))))
  await refusedWith('dataset-unreadable', /is empty/, import_(await file('')))
  await refusedWith(
    'job-invalid',
    /expected a model of the 26 characters in .*, got one of 25/,
    importText(ALPHABET, { vocab: 25 }),
  )
  await refusedWith(
    'dataset-unreadable',
    /has 26 characters to validate with, and a sample of the model takes 26/,
    importText(ALPHABET.repeat(10), { context: 26 }),
  )
  const mlp = parseModelSpec({ input: [8], layers: [{ type: 'linear', name: 'a', out: 26 }] })
  await refusedWith(
    'job-invalid',
    /expected a model for text that begins with an `embedding`/,
    import_(await file(ALPHABET), mlp),
  )
  const oneAnswer = parseModelSpec({
    input: [8],
    layers: [
      { type: 'embedding', name: 'e', vocab: 26, channels: 2 },
      { type: 'flatten' },
      { type: 'linear', name: 'a', out: 26 },
    ],
  })
  await refusedWith('job-invalid', /expected a model that answers \[8, 26\]/, import_(await file(ALPHABET), oneAnswer))
  await refusedWith(
    'job-invalid',
    /expected a model for the numbers of dataset digits, got one for tokens/,
    importDataset({ source: 'digits' }, model(26), { blobs: memoryBlobs(), catalog }),
  )
})
