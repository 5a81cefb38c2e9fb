// Notes of a machine's owner, over several processes and restarts: the upload limit, and jobs that lose its device.
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import type { KeptNotes } from '@starling-grid/volunteer'
import { openNotes } from '../src/kept-notes.ts'

const LIMIT = 100_000
const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const SPENDER = fileURLToPath(new URL('spend-uploads.ts', import.meta.url))

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'starling-notes-'))
  after(() => rm(folder, { recursive: true, force: true }))
  return folder
}

interface Spender {
  readonly child: ChildProcess
  readonly lines: AsyncIterator<string>
}

/** Resolves when the process is ready to send. */
async function started(folder: string): Promise<Spender> {
  const child = spawn(process.execPath, [TYPESCRIPT, SPENDER, folder, String(LIMIT)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  after(() => child.kill('SIGKILL'))
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  assert.equal((await lines.next()).value, 'ready')
  return { child, lines }
}

/** Bytes that it sent until it was refused. */
async function spent({ child, lines }: Spender): Promise<number> {
  const ended = once(child, 'exit')
  child.stdin?.write('go\n')
  const sent = Number((await lines.next()).value)
  await ended
  return sent
}

test('threat 52: two processes of a user send no more than the limit together, nor does a restart', async () => {
  const folder = await temporaryFolder()
  const spenders = await Promise.all([started(folder), started(folder)])
  const sums = await Promise.all(spenders.map(spent))
  const sent = sums.reduce((sum, bytes) => sum + bytes)
  assert.ok(sent <= 1.05 * LIMIT, `${sums.join(' and ')} bytes of ${LIMIT}`)
  assert.ok(sent >= 0.9 * LIMIT, `${sums.join(' and ')} bytes of ${LIMIT}`)
  assert.ok((await spent(await started(folder))) <= 0.05 * LIMIT)
})

test('notes of other volunteers are found, and those that no longer count are removed', async () => {
  const folder = join(await temporaryFolder(), 'made-when-needed')
  const open = (): KeptNotes => openNotes(basename(folder), 3_600_000, dirname(folder))
  const [mine, another] = [open(), open()]
  assert.deepEqual(await mine.others(), [])
  await mine.write('first')
  await mine.write('second')
  assert.deepEqual(await mine.others(), [])
  assert.deepEqual(await another.others(), ['second'])
  const old = join(folder, 'old.json')
  await writeFile(old, 'old')
  await utimes(old, 0, 0)
  assert.deepEqual(await another.others(), ['second'])
  assert.equal((await readdir(folder)).length, 1)
})
