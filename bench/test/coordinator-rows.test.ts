// Every row of `bench coordinator` in its short form: that it measures what it says, and that nothing is lost. Never
// how fast.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { startPostgres } from '../../coordinator/test/postgres.ts'
import type { BenchRow } from '../src/row.ts'

const PROGRAM = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
const EVENTS = 2500
const timeout = 900_000

/** Rows of a database of their own, where one is there. */
async function rowsOf(only: string, state?: string): Promise<readonly BenchRow[]> {
  const args = [PROGRAM, 'bench', 'coordinator', '--short', '--rounds', '1', '--json', '--only', only]
  const env = { ...process.env, STARLING_STATE: state }
  const { stdout } = await promisify(execFile)(process.execPath, [...args, '--events', String(EVENTS)], { env })
  return (JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as { rows: BenchRow[] }).rows
}

function requireAim(row: BenchRow, aim: number): void {
  assert.deepEqual([row.reach, row.peers['aim']], [{ peer: 'aim', ratio: 1 }, aim], row.name)
  assert.ok(Object.keys(row.peers).length > 1, `${row.name} stands beside nothing`)
  assert.ok(row.ours > 0 && Number.isFinite(row.ours), `${row.name}: ${row.ours}`)
}

test('rows of SQLite: durable events, and a restart of a run that a coordinator committed', { timeout }, async () => {
  const [journal] = await rowsOf('journal')
  assert.match(journal?.name ?? '', /^journal in SQLite/)
  if (journal !== undefined) requireAim(journal, 5000)
  const [restart, ...others] = await rowsOf('restart')
  assert.equal(restart?.name, 'restart with a journal of 2,500 events in SQLite')
  requireAim(restart, 5)
  assert.deepEqual(others, [], 'no PostgreSQL was named')
})

test(
  'volunteers in processes of their own lease and push, and each block that was taken is in its version',
  {
    timeout,
  },
  async () => {
    const [leases] = await rowsOf('leases')
    assert.match(leases?.name ?? '', /^p99 of a lease, 40 volunteers/)
    if (leases !== undefined) requireAim(leases, 50)
    const { 'in versions': due = 0, lost, 'on the chain twice': twice } = leases?.counts ?? {}
    assert.ok(due >= 16, `${due} blocks`)
    assert.deepEqual([lost, twice], [0, 0])
  },
)

test('pushes are taken in with shards elsewhere, passed on as they came and as f32', { timeout }, async () => {
  const rows = await rowsOf('pushes')
  assert.deepEqual(
    rows.map(({ name }) => /of (\d+) numbers in sparse2, 4 shards elsewhere/.exec(name)?.[1]),
    ['274042', '10770816'],
  )
  for (const { ours, peers, counts } of rows) {
    assert.deepEqual(Object.keys(peers), ['passed on as f32', 'no shards elsewhere'])
    assert.ok(ours > 0 && (counts?.['bytes of a push'] ?? 0) > 10_000)
  }
})

test('shards are read over HTTP, and the memory of the coordinator is looked at meanwhile', { timeout }, async () => {
  const [rate, memory] = await rowsOf('shards')
  assert.equal(rate?.name, 'shards served to 4 readers')
  requireAim(rate, 500)
  if (process.platform !== 'linux') return
  assert.equal(memory?.name, 'coordinator that serves shards, memory')
  assert.ok((rate.counts?.['MB served'] ?? 0) > 10)
  assert.ok(memory.ours >= (memory.peers['before'] ?? Number.POSITIVE_INFINITY))
})

test(
  'rows of PostgreSQL: durable events, a restart, and a take-over that loses nothing',
  { timeout },
  async (context) => {
    const postgres = await startPostgres()
    if (postgres === undefined) return context.skip('PostgreSQL is not here')
    context.after(() => postgres.stop())
    // Coordinators of one row are no others to those of the next.
    const [, journal] = await rowsOf('journal', postgres.database('journal'))
    assert.match(journal?.name ?? '', /^journal in PostgreSQL/)
    const [, restart] = await rowsOf('restart', postgres.database('restart'))
    assert.equal(restart?.name, 'restart with a journal of 2,500 events in PostgreSQL')
    requireAim(restart, 5)
    const takeovers = await rowsOf('takeover', postgres.database('takeover'))
    assert.deepEqual(
      takeovers.map(({ name }) => /(median|slowest) of 1 kills$/.exec(name)?.[1]),
      ['median', 'slowest'],
    )
    for (const row of takeovers) {
      requireAim(row, 10)
      const { kills, steps = 0, ...bad } = row.counts ?? {}
      assert.deepEqual([kills, bad], [1, { 'steps lost': 0, 'blocks twice': 0 }])
      assert.ok(steps > 20, `${steps} steps`)
    }
  },
)
