// A job file is read whole or refused whole: each bad file of the table gets its error, with line, path and near miss.
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { readJobFile } from '@starling-grid/client/job-file'
import { isGridError, MistakesError } from '@starling-grid/protocol'
import { BAD_JOBS } from './bad-jobs.ts'

const GOOD = `# a comment
name: Digits
owner: a test
purpose: Reads digits.
model:
  name: small
  input: [1, 28, 28]
  layers:
    - type: flatten
    - { type: linear, name: fc1, out: 10 }
  loss: cross_entropy
dataset:
  source: digits
optimizer:
  type: sgd
  lr: 0.1
  momentum: 0.9
blockSamples: 8
batchBlocks: 4
stop: { epochs: 2 }
seed: 1
mode: ring
`

let folder = ''
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'starling-job-file-'))
})
after(() => rm(folder, { recursive: true }))

async function written(text: string | Uint8Array, name = 'job.yaml'): Promise<string> {
  const file = join(folder, name)
  await writeFile(file, text)
  return file
}

/** What the file is refused with, a line for each mistake, without the folder. */
async function refusalOf(text: string | Uint8Array): Promise<string> {
  const file = await written(text)
  try {
    await readJobFile(file)
  } catch (error) {
    assert.ok(isGridError(error), String(error))
    return error.message.replaceAll(file, 'job.yaml')
  }
  return 'taken'
}

test('gradient accumulation is a step of so many times the blocks, and read again the same', async () => {
  const more = GOOD.replace('batchBlocks: 4', 'batchBlocks: 4\ngradientAccumulation: 8')
  const { job } = await readJobFile(await written(more))
  const { job: same } = await readJobFile(await written(GOOD.replace('batchBlocks: 4', 'batchBlocks: 32')))
  assert.deepEqual(job, same)
  assert.deepEqual((await readJobFile(await written(JSON.stringify(job), 'again.json'))).job, job)
})

test('a job is the same in YAML and in JSON', async () => {
  const { job } = await readJobFile(await written(GOOD))
  const { job: same } = await readJobFile(await written(JSON.stringify(job, null, '\t'), 'job.json'))
  assert.deepEqual(same, job)
  assert.equal(job.optimizer.lr, 0.1)
})

test('every bad job file of the table gets its error', async () => {
  assert.ok(BAD_JOBS.length >= 60, `expected at least 60 bad job files, got ${BAD_JOBS.length}`)
  for (const { change, refused } of BAD_JOBS) {
    const text = typeof change === 'string' ? change : GOOD.replace(change[0], change[1])
    assert.notEqual(text, GOOD, `the change ${String(change)} changes nothing`)
    assert.equal(await refusalOf(text), refused, String(change))
  }
})

test('all mistakes of a file come at once, each at its line', async () => {
  const text = GOOD.replace('name: Digits', 'nmae: Digits')
    .replace('type: flatten', 'type: flaten')
    .replace('out: 10', 'out: 0, biass: true')
    .replace('lr: 0.1', 'lr: -1')
    .replace('seed: 1', 'seed: one')
  assert.deepEqual(
    (await refusalOf(text)).split('\n').map((line) => line.split(':').slice(1, 4).join(':')),
    [
      '2:1: nmae',
      '16:3: optimizer.lr',
      '21:1: seed',
      '9:7: model.layers[0].type',
      '10:34: model.layers[1].out',
      '10:42: model.layers[1].biass',
    ],
  )
})

test('what only the coordinator finds gets its line, too', async () => {
  const { located } = await readJobFile(await written(GOOD))
  const found = located(
    new MistakesError('job-invalid', [{ path: ['model', 'layers', 1, 'out'], expected: '10', found: '9' }]),
  )
  assert.match(found.message, /job\.yaml:10:34: model\.layers\[1\]\.out: expected 10, got 9$/)
})

test('a file that would take memory or time is refused before anything is built of it', async () => {
  const laughs = [
    'a: &a [l, o, l]',
    ...Array.from(
      { length: 9 },
      (_, i) => `${'bcdefghij'[i]}: &${'bcdefghij'[i]} [${`*${'abcdefghi'[i]}, `.repeat(9)}l]`,
    ),
  ]
  assert.match(
    await refusalOf(laughs.join('\n')),
    /^expected aliases of values before them, of at most 100 values in all/,
  )
  const tooDeep = /^expected at most 32 levels and 65536 keys and values in job\.yaml, got more/
  assert.match(await refusalOf('['.repeat(10_000)), tooDeep)
  assert.match(await refusalOf('- '.repeat(10_000)), tooDeep)
  assert.match(await refusalOf('{a: '.repeat(10_000)), tooDeep)
  assert.match(await refusalOf(`[${'1,'.repeat(66_000)}]`), tooDeep)
  assert.match(await refusalOf('#'.repeat(600_000)), /^expected a file of at most 524288 bytes/)
  assert.match(await refusalOf(new Uint8Array([0xff, 0xfe, 0xfd])), /^expected a file with a job, got job\.yaml/)
})

test('the example is a job', async () => {
  const { job } = await readJobFile(
    fileURLToPath(new URL('../../examples/nanogpt-shakespeare-char.yaml', import.meta.url)),
  )
  assert.equal(job.seed, 1337)
})

test('a file that is not there is named', async () => {
  await assert.rejects(
    readJobFile(join(folder, 'nowhere.yaml')),
    /expected a file with a job, got .*nowhere\.yaml .*; name one that can be read/,
  )
})
