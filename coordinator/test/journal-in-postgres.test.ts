import assert from 'node:assert/strict'
import { createServer, connect, type Socket } from 'node:net'
import { after, describe, test } from 'node:test'
import { blockIndex, jobId, trainingBlock } from '@starling-grid/protocol'
import { openPostgresState } from '../src/journal/postgres.ts'
import type { JournalRow, StateStore } from '../src/journal/state-store.ts'
import { startPostgres, type TestPostgres } from './postgres.ts'
import { stateStoreSuite } from './state-store-suite.ts'

const JOB = jobId('j')
const row = (at: number): JournalRow => ({ at, entry: { type: 'quarantine', block: trainingBlock(0, at) } })

async function prepared(url: string): Promise<StateStore> {
  const store = await openPostgresState(url)
  await store.createJob({ id: JOB, description: '{}' })
  await store.takeOver(JOB, 1, () => undefined)
  return store
}

async function blocksOf(store: StateStore): Promise<number[]> {
  const rows = await store.load(JOB)
  return rows.flatMap(({ entry }) => (entry.type === 'quarantine' ? [blockIndex(entry.block)] : []))
}

const server = await startPostgres()
describe('the journal in PostgreSQL', { skip: server === undefined }, () => {
  const postgres = server as TestPostgres // the tests are skipped where there is none
  let databases = 0
  const newDatabase = (): string => postgres.database(`journal_${++databases}`)
  after(() => postgres.stop())

  stateStoreSuite('in PostgreSQL', async () => {
    const store = await openPostgresState(newDatabase())
    return { store, close: () => store.close() }
  })

  test('an append whose answer was lost is made once', async () => {
    const url = newDatabase()
    const line = await cuttableLine(Number(new URL(url).port))
    const store = await prepared(url.replace(/:\d+\//, `:${line.port}/`))
    for (let at = 1; at <= 10; at++) {
      // every second time the question arrives, and the line is cut before the answer does
      if (at % 2 === 0) line.cutAfterCommit()
      await persistently(() => store.append(JOB, 1, [row(at)]))
    }
    assert.deepEqual(await blocksOf(store), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    assert.ok(line.cuts >= 5, `the line was cut ${line.cuts} times`)
    await store.close()
    line.close()
  })

  test('a connection that ends between two statements fails as a disk does', async () => {
    const url = newDatabase()
    const line = await cuttableLine(Number(new URL(url).port))
    const store = await prepared(url.replace(/:\d+\//, `:${line.port}/`))
    line.endAfterBegin()
    await assert.rejects(store.append(JOB, 1, [row(1)]), { code: 'disk-failed', message: /not queryable/ })
    line.endAfterBegin()
    await persistently(() => store.append(JOB, 1, [row(1)]))
    assert.deepEqual(await blocksOf(store), [1])
    await store.close()
    line.close()
  })

  test('while the server is down an append fails; when it is back, all that was acknowledged is there', async (t) => {
    t.after(() => postgres.start()) // for the tests after one that failed
    const store = await prepared(newDatabase())
    await store.append(JOB, 1, [row(1)])
    await postgres.kill()
    await assert.rejects(store.append(JOB, 1, [row(2)]), { code: 'disk-failed' })
    await postgres.start()
    await persistently(() => store.append(JOB, 1, [row(2)]))
    assert.deepEqual(await blocksOf(store), [1, 2])
    await store.close()
  })

  test('two coordinators on one database: the newer owns the job, the older notices at its next append', async () => {
    const url = newDatabase()
    const [first, second] = [await prepared(url), await openPostgresState(url)]
    await second.takeOver(JOB, 2, () => undefined)
    await assert.rejects(first.append(JOB, 1, [row(1)]), { code: 'lease-stale' })
    await second.append(JOB, 2, [row(1)])
    await Promise.all([first.close(), second.close()])
  })

  test('a database that cannot be reached is named without its password', async () => {
    const away = new URL(postgres.url)
    away.password = 'secret-of-mine'
    away.port = '1'
    await assert.rejects(openPostgresState(away.href), (error: Error) => {
      assert.match(error.message, /PostgreSQL at 127\.0\.0\.1:1\/postgres/)
      assert.doesNotMatch(error.message, /secret-of-mine/)
      return true
    })
  })
})

/** As the outbox does. */
async function persistently(deed: () => Promise<void>): Promise<void> {
  for (;;) {
    try {
      return await deed()
    } catch (error) {
      assert.equal((error as { code?: string }).code, 'disk-failed')
    }
  }
}

interface CuttableLine {
  readonly port: number
  readonly cuts: number
  /** The next COMMIT arrives, and its answer does not. */
  cutAfterCommit(): void
  /** Behind the next answer to BEGIN comes what a process of a server says that lost its postmaster. */
  endAfterBegin(): void
  close(): void
}

/** ErrorResponse, postgresql.org/docs/current/protocol-message-formats.html */
const LAST_WORDS = errorResponse({ S: 'FATAL', V: 'FATAL', C: '57P01', M: 'terminating: the postmaster is gone' })

function errorResponse(fields: Readonly<Record<string, string>>): Buffer {
  const body = Buffer.from(
    `${Object.entries(fields)
      .map(([type, value]) => `${type}${value}\0`)
      .join('')}\0`,
  )
  const head = Buffer.alloc(5)
  head.write('E')
  head.writeInt32BE(body.length + 4, 1)
  return Buffer.concat([head, body])
}

/** Between the store and the server. */
async function cuttableLine(port: number): Promise<CuttableLine> {
  let cuts = 0
  let armed = false
  let ending = false
  const sockets = new Set<Socket>()
  const line = createServer((near) => {
    const far = connect(port, '127.0.0.1')
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.on('error', () => undefined)
    }
    let silent = false
    near.on('data', (bytes) => {
      if (armed && bytes.includes('COMMIT')) {
        armed = false
        silent = true
      }
      far.write(bytes)
    })
    far.on('data', (bytes) => {
      if (ending && bytes.includes('BEGIN\0')) {
        ending = false
        near.end(Buffer.concat([bytes, LAST_WORDS]))
      } else if (!silent) near.write(bytes)
      else {
        cuts++
        near.destroy()
      }
    })
    near.on('close', () => far.destroy())
    far.on('close', () => near.destroy())
  })
  await new Promise<void>((resolve) => line.listen(0, '127.0.0.1', resolve))
  const address = line.address()
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    get cuts() {
      return cuts
    },
    cutAfterCommit() {
      armed = true
    },
    endAfterBegin() {
      ending = true
    },
    close() {
      for (const socket of sockets) socket.destroy()
      line.close()
    },
  }
}
