// `train FILE` ended in the middle and called again: one run, from where it was, with every sample once.
import assert from 'node:assert/strict'
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { type Child, startChild, stopChild } from '@starling-grid/cli'
import { allRecords, ROUTES, type RunView } from '@starling-grid/protocol'
import { auditChain } from '../src/audit.ts'
import { smallJob } from './small-job.ts'

const STEPS = 60

class Training {
  readonly child: Child
  readonly said: string[] = []
  #changed: () => void = () => undefined

  constructor(folder: string, args: readonly string[] = []) {
    const base = [
      'train',
      join(folder, 'job.json'),
      '--data-dir',
      join(folder, 'runs'),
      '--executor',
      'reference',
      '--port',
      '0',
      '--json',
      '--out',
      join(folder, 'model.safetensors'),
    ]
    this.child = startChild({
      name: 'train',
      args: [...base, ...args],
      onLine: (line) => {
        this.said.push(line)
        return this.#changed()
      },
    })
  }

  /** The first line, past or future, that matches. */
  async line(pattern: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      for (const line of this.said) {
        const found = pattern.exec(line)
        if (found !== null) return found
      }
      await new Promise<void>((resolve, reject) => {
        this.#changed = resolve
        void this.child.ended.then((code) =>
          reject(new Error(`train ended (${code}) before ${pattern}: ${this.said.slice(-5).join(' | ')}`)),
        )
      })
    }
  }

  async url(): Promise<string> {
    return (await this.line(/open\s+(http:\S+)/))[1] ?? ''
  }
}

async function jobs(url: string): Promise<RunView[]> {
  return ((await (await fetch(`${url}${ROUTES.jobs}`)).json()) as { jobs: RunView[] }).jobs
}

async function isGone(url: string): Promise<void> {
  while (
    await fetch(`${url}${ROUTES.healthz}`).then(
      () => true,
      () => false,
    )
  )
    await new Promise((resolve) => setTimeout(resolve, 100))
}

test(
  'train that was killed in the middle goes on from where it was when it is called again, and counts every sample once',
  { timeout: 400_000 },
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'starling-train-'))
    await writeFile(join(folder, 'job.json'), JSON.stringify(smallJob({ stop: { steps: STEPS } })))
    const started: Training[] = []
    const train = (...args: string[]): Training => {
      const training = new Training(folder, args)
      started.push(training)
      return training
    }
    try {
      const first = train()
      await first.line(/^A new run of .* begins; it is kept in /)
      const url = await first.url()
      assert.match(await (await fetch(`${url}/`)).text(), /<html/, 'it serves the pages')
      let before: RunView | undefined
      while ((before?.version.v ?? 0) < 10) {
        await new Promise((resolve) => setTimeout(resolve, 100))
        before = (await jobs(url))[0]
      }
      first.child.kill('SIGKILL')
      await isGone(url) // its children end by themselves

      const second = train()
      await second.line(/^The run of .* goes on/)
      const result = JSON.parse((await second.line(/^\{.*"dataDir".*\}$/))[0]) as {
        job: string
        resumed: boolean
        steps: number
        dataDir: string
      }
      assert.deepEqual([result.resumed, result.job, result.steps], [true, before?.job.id, STEPS])
      const address = await second.url()
      const records = await allRecords(result.job, async (path) => (await fetch(`${address}${path}`)).json())
      assert.equal(records.length, STEPS)
      assert.equal(auditChain(records, new Set(records.flatMap(({ blocks }) => blocks)).size).duplicated, 0)
      await stopChild(second.child)

      const changed = train('--steps', '2', '--once')
      await changed.line(/changed since the run in .*: a new run begins/)
      assert.equal(await changed.child.ended, 0)
      assert.equal((await readdir(join(folder, 'runs'))).length, 2, 'the older run stays')
    } finally {
      await Promise.all(started.map(({ child }) => stopChild(child)))
      await rm(folder, { recursive: true, force: true })
    }
  },
)
