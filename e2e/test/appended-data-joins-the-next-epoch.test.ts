// The production grid, in processes of its own. Data is appended to a dataset by the command while a job trains on it:
// the next epochs have it, also after the coordinator was killed, and no block is trained twice.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Grid } from '@starling-grid/cli'
import { blockIndex, epochOf } from '@starling-grid/protocol'
import { PACED, QUICK } from './small-job.ts'

const run = promisify(execFile)
const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
const ROWS = 200
/** of `ROWS` and `--split 0.1` */
const TRAINED = 180
const APPENDED = 100
const BLOCK_SAMPLES = 4
/** Enough that the command ends before the last begins, on a busy machine, too. */
const EPOCHS = 8

test('appended data is trained from the next epoch on', { timeout: 300_000 }, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'starling-'))
  const grid = await Grid.start({ timing: QUICK })
  try {
    const table = async (name: string, rows: number): Promise<string> => {
      const path = join(folder, `${name}.csv`)
      const lines = Array.from({ length: rows }, (_, i) => `${i % 17},${i % 5},${(i % 17) - (i % 5)}`)
      await writeFile(path, ['a,b,sum', ...lines, ''].join('\n'))
      return path
    }
    const importInto = (...args: string[]) =>
      run(process.execPath, [STARLING, 'dataset', 'import', 'sums', ...args, '--data-dir', grid.dataDir])
    await importInto(await table('first', ROWS), '--values', 'sum', '--split', '0.1')
    const id = await grid.submit({
      name: 'Sums',
      owner: 'a test',
      purpose: '',
      public: true,
      model: { input: [2], layers: [{ type: 'linear', name: 'fc', out: 1 }], loss: 'mse' },
      dataset: { name: 'sums' },
      optimizer: { type: 'sgd', lr: 0.02 },
      blockSamples: BLOCK_SAMPLES,
      batchBlocks: 3,
      stop: { epochs: EPOCHS, metric: 'R2' },
      seed: 3,
      mode: 'ring',
      volunteers: { min: 2 },
    })
    for (let i = 0; i < 2; i++) grid.addVolunteer(PACED)
    await grid.watch.waitFor('some steps', ({ run }) => (run?.version.v ?? 0) >= 2)
    await importInto(await table('second', APPENDED), '--append')
    await grid.watch.waitFor('the appended data', ({ run }) => run?.job.trainSamples === TRAINED + APPENDED)
    await grid.killCoordinator()
    await grid.restartCoordinator()
    const ended = await grid.watch.waitFor('the end', ({ run }) => run?.phase === 'finished' && run, 240_000)

    const blocks = (await grid.records(id)).flatMap((record) => record.blocks)
    assert.equal(new Set(blocks).size, blocks.length, 'no block twice')
    const counts = Array.from({ length: EPOCHS }, (_, epoch) => blocks.filter((one) => epochOf(one) === epoch).length)
    const [few, many] = [TRAINED / BLOCK_SAMPLES, (TRAINED + APPENDED) / BLOCK_SAMPLES]
    const grown = counts.indexOf(many)
    assert.ok(grown >= 1, `epochs have ${counts.join(', ')} blocks`)
    assert.deepEqual(
      counts,
      [...counts.keys()].map((epoch) => (epoch < grown ? few : many)),
    )
    assert.equal(Math.max(...blocks.map(blockIndex)), many - 1)
    assert.equal(ended.samplesCommitted, ended.samplesExpected)
    assert.equal(ended.best?.metric, 'R2')
    assert.ok((ended.best?.value ?? 0) > 0.9, `R² ${ended.best?.value}`)
  } finally {
    await grid.stop()
    await rm(folder, { recursive: true, force: true })
  }
})
