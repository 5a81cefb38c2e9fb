// A text file, a small GPT and two volunteers: tokens, windows, attention and AdamW's schedule through the whole grid.
import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Grid, textJob } from '@starling-grid/cli'
import { parseModelSpec } from '@starling-grid/model'
import { readSafetensors } from '@starling-grid/protocol'

const folder = await mkdtemp(join(tmpdir(), 'starling-text-'))
after(() => rm(folder, { recursive: true }))

/** Every letter tells the next one: a model that sees its own position and token can learn it. */
const ALPHABET = 'abcdefghijklmnop'
const STEPS = 40

test('two volunteers teach a GPT a text, and the export says how to use it', async () => {
  const path = join(folder, 'alphabet.txt')
  await writeFile(path, ALPHABET.repeat(100))
  const grid = await Grid.start()
  try {
    const optimizer = {
      type: 'adamw',
      lr: 0.01,
      betas: [0.9, 0.99],
      weightDecay: 0.1,
      decay: 'matrices',
      schedule: { type: 'cosine', to: 0.1, warmup: 5 },
    } as const
    const job = textJob({
      path,
      vocab: ALPHABET.length,
      stop: { epochs: 1, steps: STEPS },
      seed: 1,
      minVolunteers: 2,
      optimizer: { ...optimizer, betas: [0.9, 0.99] },
    })
    const id = await grid.submit(job)
    for (let i = 0; i < 2; i++) grid.addVolunteer({ executor: 'reference' })
    const run = await grid.watch.waitFor('the last step', ({ run }) => run?.phase === 'finished' && run)
    const [first, last, validation] = [grid.watch.steps[0], grid.watch.steps.at(-1), grid.watch.validations.at(-1)]
    assert.equal(grid.watch.steps.length, STEPS)
    assert.equal(run.checkpoint?.agreeing, 2)
    // a loss is the mean over tokens: the first is that of guessing
    assert.ok(Math.abs((first?.loss ?? 0) - Math.log(ALPHABET.length)) < 0.2, `${first?.loss}`)
    assert.ok(last !== undefined && last.loss < 1, `${last?.loss}`)
    assert.ok(validation !== undefined && hasLearnt(validation), JSON.stringify(validation))
    await grid.exportModel(id, join(folder, 'model'))
    const { metadata } = readSafetensors(new Uint8Array(await readFile(join(folder, 'model'))))
    assert.equal(metadata['vocabulary'], ALPHABET)
    assert.deepEqual(parseModelSpec(JSON.parse(metadata['spec'] ?? '')), job.model)
  } finally {
    await grid.stop()
  }
})

function hasLearnt({ loss, accuracy = 0 }: { loss: number; accuracy?: number | undefined }): boolean {
  return loss < 1 && accuracy > 0.7 && accuracy <= 1
}
