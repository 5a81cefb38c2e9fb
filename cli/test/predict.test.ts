// `starling predict` as people call it, with models whose answers are known by hand.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { exportModel, parameterLayout, parseModelSpec } from '@starling-grid/model'
import { type ModelSignature, versionId } from '@starling-grid/protocol'
import { PNG } from 'pngjs'
import { CommandProcess, type Ended, runStarling } from './command-process.ts'

const folder = await mkdtemp(join(tmpdir(), 'starling-predict-'))
after(() => rm(folder, { recursive: true, force: true }))

const commands = new CommandProcess()
after(() => commands.end())

function predict(...args: string[]): Promise<Ended> {
  return commands.run(['predict', '--executor', 'reference', ...args], folder)
}

async function answers(...args: string[]): Promise<string> {
  const { status, stdout, stderr } = await predict(...args)
  assert.equal(status, 0, stderr)
  return stdout
}

async function refusal(...args: string[]): Promise<string> {
  const { status, stdout, stderr } = await predict(...args)
  assert.notEqual(status, 0, stdout)
  return stderr
}

interface Made {
  readonly signature?: ModelSignature
  readonly vocabulary?: string
  readonly tokenizer?: string
}

async function model(name: string, description: object, values: readonly number[], made: Made): Promise<string> {
  const spec = parseModelSpec({ name, ...description })
  const layout = parameterLayout(spec)
  assert.equal(layout.total, values.length)
  const parameters = Float32Array.from(values)
  const id = versionId(createHash('sha256').update(parameters).digest('hex'))
  const file = join(folder, `${name}.safetensors`)
  await writeFile(file, exportModel({ spec, layout, parameters, version: { v: 1, id }, ...made }))
  return file
}

/** price = 2 · (area − 10) / 5 − (age − 1) / 2 + 3 */
const house = await model(
  'house',
  { input: [2], loss: 'mse', layers: [{ type: 'linear', name: 'fc', out: 1 }] },
  [2, -1, 3],
  {
    signature: {
      inputShape: [2],
      inputType: 'F32',
      inputScale: 1,
      classes: 1,
      target: 'values',
      normalize: { mean: [10, 1], deviation: [5, 2] },
      inputNames: ['area', 'age'],
      targetNames: ['price'],
    },
  },
)

test('a row gets its values under the names of their columns, normalised as in training', async () => {
  const { status, stdout, stderr } = await runStarling(['predict', '--executor', 'reference', house, '20,5'])
  assert.deepEqual([status, stdout], [0, '20,5\n  price  5\n'], stderr)
  assert.equal(await answers(house, '20,5', '--json'), '{"input":"20,5","values":[{"name":"price","value":5}]}\n')
})

test('a table is read by the names of its columns, and answered row by row as CSV', async () => {
  const file = join(folder, 'houses.csv')
  await writeFile(file, 'age,street,area\n5,"Elm, 3",20\n1,Oak,10\n')
  assert.equal(await answers(house, file), `input,price\r\n${file}:1,5\r\n${file}:2,3\r\n`.replaceAll('\r', ''))
  const lines = join(folder, 'houses.jsonl')
  await writeFile(lines, '{"area": 15, "age": 1}\n')
  assert.equal(await answers(house, lines), `input,price\n${lines}:1,5\n`)
  const bare = join(folder, 'bare.csv')
  await writeFile(bare, '20,5\n')
  assert.equal(await answers(house, bare, '--no-header'), `input,price\n${bare}:1,5\n`)
})

test('rows that do not fit are refused with what the model takes', async () => {
  assert.match(await refusal(house, '20'), /expected 2 numbers \(area, age\) in a row, got 1/)
  assert.match(await refusal(house, '20,old'), /expected a number in column age, got "old"/)
  assert.match(await refusal(house, join(folder, 'nothing.csv')), /nothing\.csv: cannot be read/)
  assert.match(await refusal(house), /got no input/)
})

/** Two classes of 1 × 2 pixels: the left one is bright, or the right one. */
const side = await model(
  'side',
  { input: [1, 1, 2], layers: [{ type: 'flatten' }, { type: 'linear', name: 'fc', out: 2, bias: false }] },
  [2, 0, 0, 2],
  { signature: { inputShape: [1, 1, 2], inputScale: 1 / 255, classes: 2, classNames: ['left', 'right'] } },
)

async function picture(name: string, pixels: readonly number[]): Promise<string> {
  const image = new PNG({ width: pixels.length, height: 1 })
  image.data = Buffer.from(pixels.flatMap((grey) => [grey, grey, grey, 255]))
  const file = join(folder, name)
  await mkdir(join(file, '..'), { recursive: true })
  await writeFile(file, PNG.sync.write(image))
  return file
}

test('an image gets the probabilities of its classes with bars, the best first', async () => {
  const file = await picture('one.png', [0, 255])
  const text = await answers(side, file)
  // softmax of 0 and 2
  assert.equal(text, `${file}\n  right   88.1 %  ${'█'.repeat(26)}\n  left    11.9 %  ${'█'.repeat(4)}\n`)
  assert.equal(await answers(side, file, '--top', '1'), `${text.split('\n').slice(0, 2).join('\n')}\n`)
})

test('a folder of images is answered as CSV or JSON lines, each under its file', async () => {
  const [dark, light] = [await picture('many/a.png', [255, 0]), await picture('many/deep/b.png', [0, 255])]
  await writeFile(join(folder, 'many/notes.txt'), 'no image')
  const csv = await answers(side, join(folder, 'many'))
  assert.equal(csv, `input,class,probability\n${dark},left,0.880797\n${light},right,0.880797\n`)
  const lines = (await answers(side, join(folder, 'many'), '--json', '--top', '1')).trim().split('\n')
  assert.deepEqual(
    lines.map((line) => JSON.parse(line) as unknown),
    [
      { input: dark, classes: [{ class: 'left', probability: 0.880797 }] },
      { input: light, classes: [{ class: 'right', probability: 0.880797 }] },
    ],
  )
})

test('an image of another size is refused, and scaled when that is asked for', async () => {
  const file = await picture('wide.png', [255, 255, 0, 0])
  assert.match(await refusal(side, file), /expected 2 × 1 pixels, got 4 × 1. Use --resize/)
  assert.match(await answers(side, file, '--resize'), /left {4}88\.1 %/)
})

/** After each token the next one of the vocabulary, by logits of 0 and 20. */
function circle(tokens: number): { readonly description: object; readonly values: number[] } {
  const table = Array.from({ length: tokens * tokens }, (_, i) => (i % (tokens + 1) === 0 ? 1 : 0))
  const next = Array.from({ length: tokens * tokens }, (_, i) => ((i % tokens) + 1) % tokens === Math.floor(i / tokens))
  return {
    description: {
      input: [4],
      layers: [
        { type: 'embedding', name: 'tokens', vocab: tokens, channels: tokens },
        { type: 'linear', name: 'head', out: tokens, bias: false },
      ],
    },
    values: [...table, ...next.map((isNext) => (isNext ? 20 : 0))],
  }
}

test('a text is gone on with in the characters of its vocabulary, the same for the same seed', async () => {
  const { description, values } = circle(3)
  const signature = { inputShape: [4], inputScale: 1, classes: 3 }
  const file = await model('letters', description, values, { vocabulary: 'abc', signature })
  assert.equal(await answers(file, 'ab', '--tokens', '5'), 'abcabca\n')
  assert.equal(await answers(file, 'c', '--tokens', '2', '--json'), '{"input":"c","text":"ab"}\n')
  assert.match(await refusal(file, 'abx'), /expected characters of "abc" in the prompt, got "x"/)
  const hot = ['c', '--tokens', '40', '--temperature', '30', '--seed', '7']
  const drawn = await answers(file, ...hot)
  assert.equal(drawn, await answers(file, ...hot))
  assert.notEqual(drawn, await answers(file, ...hot.slice(0, -1), '8'))
})

test('a text of pieces is read and written by the tokenizer in the model, or by one that is named', async () => {
  const { description, values } = circle(4)
  const signature: ModelSignature = { inputShape: [4], inputScale: 1, classes: 4, tokens: 'bpe' }
  const tokenizer = JSON.stringify({
    version: '1.0',
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, use_regex: true },
    post_processor: null,
    decoder: { type: 'ByteLevel' },
    model: { type: 'BPE', vocab: { a: 0, Ã: 1, '¶': 2, ab: 3 }, merges: [] },
  })
  const carried = await model('pieces', description, values, { signature, tokenizer })
  // a, the two bytes of ö, ab
  assert.equal(await answers(carried, 'a', '--tokens', '4'), 'aöaba\n')
  const bare = await model('bare_pieces', description, values, { signature })
  assert.match(await refusal(bare, 'a'), /name its tokenizer\.json with --tokenizer/)
  await writeFile(join(folder, 'tokenizer.json'), tokenizer)
  assert.equal(await answers(bare, 'a', '--tokens', '4', '--tokenizer', 'tokenizer.json'), 'aöaba\n')
})

test('a file that is no exported model is refused with what to take', async () => {
  await writeFile(join(folder, 'other.safetensors'), 'not one')
  assert.match(await refusal(join(folder, 'other.safetensors'), '1,2'), /expected a safetensors file.*exported model/)
  assert.match(await refusal(join(folder, 'absent.safetensors'), '1,2'), /expected a model file, got .*absent/)
})
