// The example of docs/FINETUNE.md as a person runs it, on a small model in the form in which models are published: both
// imports by their commands, the job of the file, and answers of the tuned model from a job and from a PEFT folder.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Grid } from '@starling-grid/cli'
import { parseJob } from '@starling-grid/model'
import { publishedModel } from '@starling-grid/volunteer/testing'
import { parse } from 'yaml'
import { QUICK } from './small-job.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const run = promisify(execFile)
const folder = await mkdtemp(join(tmpdir(), 'starling-chat-'))
after(() => rm(folder, { recursive: true, force: true }))

/** Of one command line; what it wrote to stdout. */
async function starling(words: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const { stdout } = await run(process.execPath, [join(ROOT, 'bin/starling.mjs'), ...words], {
    cwd: folder,
    env: { ...process.env, ...env },
  })
  return stdout
}

test(
  'the chat example tunes a published model on conversations, which then answers',
  { timeout: 600_000 },
  async () => {
    const published = join(folder, 'published')
    await mkdir(published)
    for (const [name, content] of publishedModel({ dtype: 'BF16' })) await writeFile(join(published, name), content)
    const rows = Array.from({ length: 40 }, (_, i) => ({
      messages: [
        { role: 'user', content: `say ${i % 10}` },
        { role: 'assistant', content: 'aaaa' },
      ],
    }))
    await writeFile(join(folder, 'chats.jsonl'), rows.map((row) => JSON.stringify(row)).join('\n'))
    const data = join(folder, 'data')
    await starling(['model', 'import', 'smollm2', published, '--store', 'int8', '--data-dir', data])
    await starling([
      'dataset',
      'import',
      'chats',
      'chats.jsonl',
      '--model',
      'smollm2',
      '--context',
      '256',
      '--data-dir',
      data,
    ])
    const [model] = JSON.parse(await starling(['model', 'list', '--json', '--data-dir', data])) as { storage: string }[]
    assert.equal(model?.storage, 'int8')

    const example = parseJob(parse(await readFile(join(ROOT, 'examples/chat-tuning.yaml'), 'utf8')))
    const grid = await Grid.start({ dataDir: data, timing: QUICK })
    try {
      // The model knows nothing and is tiny: larger steps, and as many as a busy machine makes in a minute.
      const faster = { optimizer: { type: 'adamw', lr: 0.03 }, batchBlocks: 2, stop: { steps: 16 } } as const
      const id = await grid.submit({ ...example, ...faster })
      for (let i = 0; i < 2; i++) grid.addVolunteer({ executor: 'reference' })
      await grid.watch.waitFor('the end', ({ run: seen }) => seen?.phase === 'finished' && seen, 500_000)
      const losses = grid.watch.steps.map(({ loss }) => loss)
      assert.ok((losses.at(-1) ?? Infinity) < 0.8 * (losses[0] ?? 0), `loss ${losses[0]} → ${losses.at(-1)}`)

      const connection = ['--url', grid.url]
      const token = { STARLING_TOKEN: grid.token }
      const writing = ['--chat', '--tokens', '8', '--temperature', '0', '--executor', 'reference', '--json']
      const ofJob = await starling(['predict', '--job', id, 'say 3', ...writing, ...connection], token)
      await starling(['job', 'export', id, '--format', 'peft', '--out', 'adapters', ...connection], token)
      const ofFolder = await starling(['predict', published, 'say 3', '--lora', 'adapters', ...writing])
      const ofBase = await starling(['predict', published, 'say 3', ...writing])
      assert.match((JSON.parse(ofJob) as { text: string }).text, /^a+/, ofJob)
      // the base is int8 in one and as it was published in the other
      assert.match((JSON.parse(ofFolder) as { text: string }).text, /^a+/, ofFolder)
      assert.doesNotMatch((JSON.parse(ofBase) as { text: string }).text, /^aa/, ofBase)
    } finally {
      await grid.stop()
    }
  },
)
