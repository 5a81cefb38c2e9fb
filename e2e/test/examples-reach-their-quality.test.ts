// The example jobs as a person runs them: their script makes the data, the command imports it, and two volunteers
// train. Each reaches the quality that its file states, beside the best that mathematics gives for the same rows.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Grid } from '@starling-grid/cli'
import { Catalog } from '@starling-grid/coordinator/datasets'
import { parseJob } from '@starling-grid/model'
import { type JobSpec, readSafetensors, type ShardRef, type ValidationPoint } from '@starling-grid/protocol'
import { parse } from 'yaml'
import { QUICK } from './small-job.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const folder = await mkdtemp(join(tmpdir(), 'starling-examples-'))
after(() => rm(folder, { recursive: true }))
const run = promisify(execFile)
const data = join(folder, 'data')
/** the model of colour-images.yaml, which another one begins with */
const FRUITS = join(folder, 'fruits.safetensors')
await run(process.execPath, [join(ROOT, 'examples/make-data.mjs'), data])

interface Trained {
  readonly validation: ValidationPoint
  readonly catalog: Catalog
}

interface TrainOptions {
  /** of the job in the file */
  readonly change?: (job: JobSpec) => JobSpec
  /** where its model is written */
  readonly model?: string
}

let runs = 0

async function trained(
  file: string,
  imported: readonly string[],
  { change = (job) => job, model }: TrainOptions = {},
): Promise<Trained> {
  const dataDir = join(folder, `${file}-${++runs}`)
  const command = [join(ROOT, 'bin/starling.mjs'), 'dataset', 'import', ...imported, '--data-dir', dataDir]
  await run(process.execPath, command, { cwd: data })
  const grid = await Grid.start({ dataDir, timing: QUICK })
  try {
    const job = await grid.submit(change(parseJob(parse(await readFile(join(ROOT, 'examples', file), 'utf8')))))
    for (let i = 0; i < 2; i++) grid.addVolunteer({ executor: 'wasm' })
    await grid.watch.waitFor('the end', ({ run: seen }) => seen?.phase === 'finished' && seen, 900_000)
    const validation = await grid.watch.waitFor('the validation', ({ validations }) => validations.at(-1))
    if (model !== undefined) await grid.exportModel(job, model)
    return { validation, catalog: new Catalog(dataDir) }
  } finally {
    await grid.stop()
  }
}

type Row = readonly number[]

interface Rows {
  /** normalised, with a 1 for the bias */
  readonly x: readonly Row[]
  readonly y: readonly Row[]
}

/** Rows of a table dataset as members train on them. */
async function rowsOf(catalog: Catalog, name: string): Promise<{ readonly train: Rows; readonly validation: Rows }> {
  const { train, validation, statistics } = await catalog.get(name)
  const [mean, deviation] = [statistics?.mean ?? [], statistics?.deviation ?? []]
  const blobs = await catalog.blobs()
  const read = async (refs: readonly ShardRef[]): Promise<Rows> => {
    const [x, y]: [Row[], Row[]] = [[], []]
    for (const { sha256 } of refs) {
      const { tensors } = readSafetensors((await blobs.get(sha256)) ?? new Uint8Array())
      const [inputs, targets] = [tensors.get('x'), tensors.get('y')]
      assert.ok(inputs && targets)
      const values = new Float32Array(new Uint8Array(inputs.data).buffer)
      const wanted = new Uint8Array(targets.data)
      const answers = targets.dtype === 'F32' ? new Float32Array(wanted.buffer) : wanted
      const [width, size] = [inputs.shape[1] ?? 0, targets.shape[1] ?? 0]
      for (let row = 0; row < (inputs.shape[0] ?? 0); row++) {
        const raw = [...values.subarray(row * width, (row + 1) * width)]
        x.push([...raw.map((value, i) => (value - (mean[i] ?? 0)) / (deviation[i] ?? 1)), 1])
        y.push([...answers.subarray(row * size, (row + 1) * size)])
      }
    }
    return { x, y }
  }
  return { train: await read(train), validation: await read(validation) }
}

const dot = (a: Row, b: Row): number => a.reduce((sum, value, i) => sum + value * (b[i] ?? 0), 0)
const column = ({ y }: Rows, i: number): number[] => y.map((row) => row[i] ?? 0)
const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length

/** w that solves Σ weight·x·xᵀ · w = Σ x·wanted, by Gauss and Jordan. */
function solved(x: readonly Row[], wanted: readonly number[], weights: readonly number[]): number[] {
  const size = x[0]?.length ?? 0
  const table = Array.from({ length: size }, (_, i) => [
    ...Array.from({ length: size }, (__, j) =>
      x.reduce((sum, row, r) => sum + (weights[r] ?? 0) * (row[i] ?? 0) * (row[j] ?? 0), 0),
    ),
    x.reduce((sum, row, r) => sum + (row[i] ?? 0) * (wanted[r] ?? 0), 0),
  ])
  for (let i = 0; i < size; i++) {
    const pivot = table[i] ?? []
    const by = pivot[i] ?? 1
    for (let j = 0; j <= size; j++) pivot[j] = (pivot[j] ?? 0) / by
    for (const [k, other] of table.entries()) {
      const times = k === i ? 0 : (other[i] ?? 0)
      for (let j = 0; j <= size; j++) other[j] = (other[j] ?? 0) - times * (pivot[j] ?? 0)
    }
  }
  return table.map((row) => row[size] ?? 0)
}

/** Newton's method: the weights of the least logistic loss. */
function logistic(x: readonly Row[], labels: readonly number[]): number[] {
  let weights = (x[0] ?? []).map(() => 0)
  for (let turn = 0; turn < 12; turn++) {
    const likely = x.map((row) => 1 / (1 + Math.exp(-dot(row, weights))))
    const step = solved(
      x,
      labels.map((label, i) => label - (likely[i] ?? 0)),
      likely.map((p) => p * (1 - p)),
    )
    weights = weights.map((weight, i) => weight + (step[i] ?? 0))
  }
  return weights
}

test('regression.yaml comes to the loss of least squares', { timeout: 1_200_000 }, async () => {
  const { validation, catalog } = await trained('regression.yaml', ['homes', 'homes.csv', '--values', 'price,rent'])
  const rows = await rowsOf(catalog, 'homes')
  const errors = [0, 1].flatMap((i) => {
    const best = solved(
      rows.train.x,
      column(rows.train, i),
      Array.from(rows.train.x, () => 1),
    )
    return rows.validation.x.map((row, r) => (dot(row, best) - (rows.validation.y[r]?.[i] ?? 0)) ** 2)
  })
  const best = mean(errors)
  assert.ok(best > 10 && best < 80, `least squares leaves the noise: ${best}`)
  assert.ok(validation.loss <= 1.02 * best, `loss ${validation.loss}, least squares ${best}`)
})

test('multi-label.yaml comes to the loss of logistic regression', { timeout: 1_200_000 }, async () => {
  const labels = ['songs', 'songs.jsonl', '--labels', 'calm,loud,old']
  const { validation, catalog } = await trained('multi-label.yaml', labels)
  const rows = await rowsOf(catalog, 'songs')
  const losses = [0, 1, 2].flatMap((i) => {
    const best = logistic(rows.train.x, column(rows.train, i))
    return rows.validation.x.map((row, r) => {
      const logit = dot(row, best)
      return Math.log1p(Math.exp(-Math.abs(logit))) + Math.max(logit, 0) - logit * (rows.validation.y[r]?.[i] ?? 0)
    })
  })
  const best = mean(losses)
  assert.ok(best > 0.1 && best < 0.6, `the labels are learnable: ${best}`)
  assert.ok(validation.loss <= 1.03 * best, `loss ${validation.loss}, logistic regression ${best}`)
  assert.ok(validation.accuracy > 0.75, `${validation.accuracy} of the labels`)
})

test('colour-images.yaml tells 95 % of the images right', { timeout: 1_200_000 }, async () => {
  const { validation } = await trained('colour-images.yaml', ['fruits', 'fruits'], { model: FRUITS })
  assert.ok(validation.accuracy >= 0.95, `${validation.accuracy}`)
})

test(
  'fine-tuning.yaml, on the model of colour-images.yaml, is better than from the seed',
  { timeout: 1_200_000 },
  async () => {
    const few = ['few', 'few', '--split', '0.5']
    const tuned = await trained('fine-tuning.yaml', few, {
      change: (job) => ({ ...job, from: { ...job.from, file: FRUITS } }),
    })
    const anew = await trained('fine-tuning.yaml', few, { change: ({ from: _from, ...job }) => job })
    assert.ok(tuned.validation.accuracy >= 0.78, `${tuned.validation.accuracy}`)
    assert.ok(tuned.validation.accuracy >= anew.validation.accuracy + 0.2, `${anew.validation.accuracy} from the seed`)
  },
)

test(
  "vision-transformer.yaml, from weights under timm's names, is better than from the seed",
  { timeout: 1_200_000 },
  async () => {
    const weights = join(folder, 'vit.safetensors')
    const few = ['few', 'few', '--split', '0.5']
    const before = await trained('vision-transformer.yaml', ['fruits', 'fruits'], {
      model: weights,
      change: threeKinds,
    })
    const { tensors } = readSafetensors(await readFile(weights))
    assert.deepEqual(tensors.get('pos_embed')?.shape, [1, 17, 24])
    assert.ok(tensors.has('cls_token') && tensors.has('blocks.1.attn.qkv.weight'))
    const tuned = await trained('vision-transformer.yaml', few, {
      change: (job) => ({ ...job, from: { ...job.from, file: weights } }),
    })
    const anew = await trained('vision-transformer.yaml', few, {
      change: ({ from: _from, ...job }) => job,
    })
    assert.ok(before.validation.accuracy >= 0.9, `${before.validation.accuracy} of the kinds before`)
    assert.ok(tuned.validation.accuracy >= 0.8, `${tuned.validation.accuracy}`)
    assert.ok(tuned.validation.accuracy >= anew.validation.accuracy + 0.2, `${anew.validation.accuracy} from the seed`)
  },
)

/** The published weights of the example: the same model, trained on the three kinds of colour-images.yaml. */
function threeKinds({ from: _from, ...job }: JobSpec): JobSpec {
  return {
    ...job,
    model: {
      input: [3, 16, 16],
      layers: [{ type: 'vit', patch: 4, channels: 24, blocks: 2, heads: 3, classes: 3 }],
    },
    dataset: { name: 'fruits', augment: { flip: 'both', shift: 2 } },
    blockSamples: 9,
    batchBlocks: 3,
    stop: { epochs: 20 },
    evaluate: { everyEpochs: 20 },
  }
}

test('text-bpe.yaml comes within 5 % of the entropy of its text', { timeout: 1_200_000 }, async () => {
  const pieces = ['sentences', 'sentences.txt', '--tokens', 'tokenizer.json']
  const { validation } = await trained('text-bpe.yaml', pieces)
  const entropy = (5 * Math.log(8)) / 9
  assert.ok(validation.loss > 0.99 * entropy, `nothing is below the entropy: ${validation.loss}`)
  assert.ok(validation.loss < 1.05 * entropy, `loss ${validation.loss}, entropy ${entropy}`)
})
