// A published language model, in small: its folder is imported, three members (one of them a tab) tune adapters beside
// it, and what they export computes the same in a decoder that shares no code with the engine, and in PyTorch where
// that is installed.
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { ensureText, Grid } from '@starling-grid/cli'
import { importTuned } from '@starling-grid/cli/tuned-job'
import { launchBrowser } from '@starling-grid/client-node'
import { ensureWebPage } from '@starling-grid/client-web/build'
import { float32Values, type JobSpec, readSafetensors } from '@starling-grid/protocol'
import { type PlainConfig, plainLogits, publishedModel, SMALL_LLAMA } from '@starling-grid/volunteer/testing'
import { finishesWhole, QUICK } from './small-job.ts'

const STEPS = 8
const CONTEXT = 32
const RANK = 4
const ALPHA = 8
/** losses that differ by more than this do not come from the order of additions */
const MAX_LOSS_DIFFERENCE = 1e-5
const MAX_LOGIT_DIFFERENCE = 1e-4
const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))

const folder = await mkdtemp(join(tmpdir(), 'starling-tune-'))
after(() => rm(folder, { recursive: true, force: true }))

/** Words as small text in bytes; the model has a token for each. */
async function imported(): Promise<{ readonly data: string; readonly published: string }> {
  const [data, published, text] = [join(folder, 'data'), join(folder, 'published'), join(folder, 'part.txt')]
  const { path } = await ensureText(folder, () => undefined)
  await writeFile(text, (await readFile(path, 'utf8')).slice(0, 20_000))
  await importTuned({
    dataDir: data,
    model: 'small',
    published,
    files: publishedModel({ files: 2 }),
    storage: 'f32',
    text,
    context: CONTEXT,
    validationShare: 0.1,
  })
  return { data, published }
}

const job = (members: number): JobSpec => ({
  name: 'Tune together',
  owner: 'Starling',
  purpose: 'Tunes adapters beside a small published model.',
  model: { base: 'small', context: CONTEXT, lora: { rank: RANK, alpha: ALPHA } },
  dataset: { name: 'text', windowsPerEpoch: 12 * STEPS },
  optimizer: { type: 'sgd', lr: 0.5, momentum: 0.9 },
  blockSamples: 2,
  batchBlocks: 6,
  stop: { steps: STEPS },
  evaluate: { everyEpochs: 1000 },
  seed: 5,
  mode: 'ring',
  exchange: 'ring',
  volunteers: { min: members },
})

async function lossesOf(grid: Grid, id: string): Promise<number[]> {
  await finishesWhole(grid, id, STEPS)
  return grid.watch.steps.map(({ loss }) => loss)
}

/** Adapters of a finished job, as PEFT has them, written by the command that owners use. */
function exported(grid: Grid, id: string, format: 'peft' | 'merged'): string {
  const out = join(folder, format)
  const args = [STARLING, 'job', 'export', id, '--format', format, '--out', out, '--url', grid.url]
  execFileSync(process.execPath, args, { env: { ...process.env, STARLING_TOKEN: grid.token } })
  return out
}

async function weightsIn(...files: string[]): Promise<(name: string) => Float64Array | undefined> {
  const all = new Map<string, Float64Array>()
  for (const file of files)
    for (const [name, tensor] of readSafetensors(await readFile(file)).tensors)
      all.set(name, Float64Array.from(float32Values(tensor)))
  return (name) => all.get(name)
}

function largest(a: readonly number[], b: readonly number[]): number {
  assert.equal(a.length, b.length)
  return a.reduce((most, value, i) => Math.max(most, Math.abs(value - (b[i] ?? NaN))), 0)
}

test(
  'three members, one of them a tab, tune adapters as one does, and what they export is what PEFT and PyTorch take',
  { timeout: 600_000 },
  async (context) => {
    const { data, published } = await imported()
    const alone = await Grid.start({ timing: QUICK, datasetsDir: data })
    let wanted: number[]
    try {
      const id = await alone.submit(job(1))
      alone.addVolunteer({ executor: 'reference' })
      wanted = await lossesOf(alone, id)
    } finally {
      await alone.stop()
    }

    const grid = await Grid.start({ timing: QUICK, datasetsDir: data, webRoot: await ensureWebPage(() => undefined) })
    const browser = await launchBrowser()
    try {
      const id = await grid.submit(job(3))
      grid.addVolunteer({ executor: 'reference' })
      grid.addVolunteer({ executor: 'webgpu' })
      const page = await browser.newPage()
      await page.goto(`${grid.url}/?executor=wasm`)
      await page.locator('button[data-primary]').click()
      const losses = await lossesOf(grid, id)
      assert.ok(grid.watch.run?.members.some(({ client }) => client === 'tab'))
      assert.ok(largest(losses, wanted) <= MAX_LOSS_DIFFERENCE, `${losses.join()} and ${wanted.join()}`)

      const [peft, merged] = [exported(grid, id, 'peft'), exported(grid, id, 'merged')]
      const shards = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
      const base = shards.map((name) => join(published, name))
      const adapted = await weightsIn(...base, join(peft, 'adapter_model.safetensors'))
      const config = JSON.parse(await readFile(join(peft, 'adapter_config.json'), 'utf8')) as Record<string, unknown>
      assert.equal(config['peft_type'], 'LORA')
      assert.deepEqual(config['target_modules'], [
        'down_proj',
        'gate_proj',
        'k_proj',
        'o_proj',
        'q_proj',
        'up_proj',
        'v_proj',
      ])
      const ids = Array.from({ length: 9 }, (_, i) => (31 * i + 65) % 256)
      const small = SMALL_LLAMA as PlainConfig
      const logits = plainLogits(small, adapted, ids, ALPHA / RANK).flat()
      const whole = plainLogits(small, await weightsIn(join(merged, 'model.safetensors')), ids).flat()
      const before = plainLogits(small, await weightsIn(...base), ids).flat()
      assert.ok(largest(whole, logits) <= MAX_LOGIT_DIFFERENCE, `${largest(whole, logits)}`)
      assert.ok(largest(before, logits) > 10 * MAX_LOGIT_DIFFERENCE, 'adapters that change nothing')
      assert.deepEqual(JSON.parse(await readFile(join(merged, 'config.json'), 'utf8')).model_type, 'llama')

      await context.test('PyTorch gives the same logits', { skip: withoutTorch() }, () => {
        const program = fileURLToPath(new URL('../src/torch-logits.py', import.meta.url))
        const args = [program, published, peft, JSON.stringify(ids)]
        const theirs = JSON.parse(execFileSync('python3', args, { encoding: 'utf8' })) as number[]
        assert.ok(largest(theirs, logits) <= MAX_LOGIT_DIFFERENCE)
      })
    } finally {
      await browser.close()
      await grid.stop()
    }
  },
)

/** Why PyTorch cannot compare; false: it can. */
function withoutTorch(): string | false {
  const found = spawnSync('python3', ['-c', 'import torch'], { encoding: 'utf8' })
  return found.status === 0 ? false : 'torch is not installed here: the exported adapters were not tried in PyTorch'
}
