import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { blockIndex, isGridError, jobId, versionId } from '@starling-grid/protocol'
import Database from 'libsql'
import { memoryState } from '../src/journal/memory.ts'
import { openSqliteState } from '../src/journal/sqlite.ts'
import { recordsAfter } from './run-desk.ts'
import { stateStoreSuite } from './state-store-suite.ts'

const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const KILLS = 5

stateStoreSuite('in memory', async () => ({ store: memoryState(), close: async () => undefined }))

stateStoreSuite('in SQLite', async () => {
  const folder = await temporaryFolder()
  const store = openSqliteState(join(folder, 'state.db'))
  return { store, close: () => store.close() }
})

test('a journal in SQLite is there when it is opened again', async () => {
  const file = join(await temporaryFolder(), 'state.db')
  const first = openSqliteState(file)
  await first.createJob({ id: jobId('j'), description: '{}' })
  await first.takeOver(jobId('j'), 1, () => undefined)
  await first.close()
  const second = openSqliteState(file)
  assert.deepEqual(await second.load(jobId('j')), [{ at: 1, entry: { type: 'fence', fence: 1 } }])
  await assert.rejects(second.append(jobId('j'), 0, []), { code: 'lease-stale' })
  await second.close()
})

test('of a journal that was written before the chain had a table of its own, the chain is read as well', async () => {
  const file = join(await temporaryFolder(), 'state.db')
  const store = openSqliteState(file)
  await store.createJob({ id: jobId('j'), description: '{}' })
  await store.takeOver(jobId('j'), 1, () => undefined)
  const records = recordsAfter({ v: 0, id: versionId('0') }, 1, 3)
  await store.append(jobId('j'), 1, [{ at: 2, entry: { type: 'commit', records } }])
  const older = new Database(file)
  older.exec('DROP TABLE records')
  older.close()
  await store.close()
  const again = openSqliteState(file)
  await again.takeOver(jobId('j'), 3, () => undefined)
  assert.deepEqual(await again.records(jobId('j'), 1, 10), records)
  await again.close()
})

test('every row that a killed process acknowledged is in its journal, in order and without a gap', async () => {
  const file = join(await temporaryFolder(), 'state.db')
  let acknowledged = 0
  for (let kill = 0; kill < KILLS; kill++) {
    acknowledged = await appendUntilKilled(file, 20 + 7 * kill)
    const store = openSqliteState(file)
    const generations = (await store.load(jobId('j'))).flatMap(({ entry }) =>
      entry.type === 'quarantine' ? [blockIndex(entry.block)] : [],
    )
    await store.close()
    assert.deepEqual(
      generations,
      generations.map((_, i) => i + 1),
    )
    assert.ok(
      generations.length >= acknowledged,
      `${acknowledged} rows were acknowledged, ${generations.length} are there`,
    )
  }
})

test('a second coordinator on the same file takes over, and the first one notices at its next append', async () => {
  const file = join(await temporaryFolder(), 'state.db')
  const [first, second] = [openSqliteState(file), openSqliteState(file)]
  await first.createJob({ id: jobId('j'), description: '{}' })
  await first.takeOver(jobId('j'), 1, () => undefined)
  await second.takeOver(jobId('j'), 2, () => undefined)
  await assert.rejects(first.append(jobId('j'), 1, [{ at: 3, entry: { type: 'ballot', generation: 1 } }]), {
    code: 'lease-stale',
  })
  await Promise.all([first.close(), second.close()])
})

test('a commit is on the disk before it is acknowledged: every connection syncs its log in full', async () => {
  const file = join(await temporaryFolder(), 'state.db')
  const store = openSqliteState(file)
  // 2 is FULL (sqlite.org/pragma.html). A test that kills processes cannot see it: only a power cut loses what was not
  // synced.
  assert.deepEqual(store.pragmas(), { journal_mode: 'wal', synchronous: 2 })
  await store.close()
})

test('threat 26: an append leaves a reserve on the disk, and works again when there is room', async () => {
  let left = 1e6
  const store = openSqliteState(join(await temporaryFolder(), 'state.db'), () => left)
  await store.createJob({ id: jobId('j'), description: '{}' })
  await store.takeOver(jobId('j'), 1, () => undefined)
  await assert.rejects(store.append(jobId('j'), 1, [{ at: 1, entry: { type: 'ballot', generation: 1 } }]), {
    code: 'disk-failed',
  })
  left = 1e9
  await store.append(jobId('j'), 1, [{ at: 1, entry: { type: 'ballot', generation: 1 } }])
  assert.equal((await store.load(jobId('j'))).length, 2)
  await store.close()
})

test('a folder that is a file, or that may not be written, is refused with its name', async () => {
  const folder = await temporaryFolder()
  await writeFile(join(folder, 'taken'), '')
  assert.throws(
    () => openSqliteState(join(folder, 'taken', 'state.db')),
    (error) => isGridError(error) && error.code === 'folder-unwritable' && error.message.includes('taken'),
  )
  if (process.getuid?.() === 0) return console.log('not tested: permissions do not bind the superuser')
  const locked = join(folder, 'locked')
  await mkdir(locked)
  await chmod(locked, 0o500)
  assert.throws(
    () => openSqliteState(join(locked, 'state.db')),
    (error) => isGridError(error) && error.code === 'folder-unwritable',
  )
})

/** Number of the last row that the child said is durable before it was killed. */
async function appendUntilKilled(file: string, rows: number): Promise<number> {
  const child = spawn(process.execPath, [TYPESCRIPT, fileURLToPath(new URL('append-rows.ts', import.meta.url)), file], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let last = 0
  let seen = 0
  for await (const line of createInterface({ input: child.stdout })) {
    last = Number(line)
    if (++seen === rows) child.kill('SIGKILL')
  }
  return last
}

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'starling-'))
  after(() => rm(folder, { recursive: true, force: true }))
  return folder
}
