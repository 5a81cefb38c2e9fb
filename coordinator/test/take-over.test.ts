// A second coordinator on the data folder of the first: told who is there, or given the jobs with all that was
// committed.
import assert from 'node:assert/strict'
import { readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { CLOSE_AWAY, isGridError, pathTo, ROUTES } from '@starling-grid/protocol'
import Database from 'libsql'
import { FolderOwner } from '../src/folder-owner.ts'
import { readJob } from '../src/jobs/jobs.ts'
import { openSqliteState } from '../src/journal/sqlite.ts'
import { DEFAULT_TIMING, replay } from '../src/run/index.ts'
import { type CoordinatorProcess, spawnCoordinator } from './coordinator-process.ts'
import {
  OWNER,
  QUICK,
  recordsOf,
  runOf,
  smallJob,
  startCoordinator,
  submit,
  temporaryFolder,
  TOKEN,
  until,
  volunteer,
} from './fixture.ts'

const SLOW = fileURLToPath(new URL('slow-take-over.ts', import.meta.url))
const BLOCKS = 36
/**
 * 90 slow steps that cost no core. So the first coordinator is far from the end when the second one starts, even on a
 * busy machine.
 */
const EPOCHS = 10
const SLOW_STEP_MS = 300
/** STARLING_TAKEOVERS=12 tries more gaps; each is two processes */
const GAPS = Array.from(
  { length: Number(process.env['STARLING_TAKEOVERS'] ?? 2) },
  (_, i) => [0, 250, 50, 100, 150, 300][i % 6] ?? 0,
)

function start(dataDir: string, ...more: string[]): CoordinatorProcess {
  return spawnCoordinator([
    '--json',
    '--port',
    '0',
    '--data-dir',
    dataDir,
    '--token',
    TOKEN,
    '--timing',
    JSON.stringify(QUICK),
    ...more,
  ])
}

for (const gapMs of GAPS)
  test(
    `a coordinator that takes over ${gapMs} ms after it looked loses no step that the one before committed meanwhile`,
    { timeout: 120_000 },
    async () => {
      const dataDir = await temporaryFolder()
      const first = await start(dataDir).listening()
      const { id } = await submit(first.url, smallJob({ stop: { epochs: EPOCHS } }))
      const members = [1, 2].map(() => volunteer(first.url, { stepMs: SLOW_STEP_MS }))
      await until(first.url, 'steps', (run) => run.version.v >= 5)
      const second = await spawnCoordinator([dataDir, TOKEN, JSON.stringify(QUICK), String(gapMs)], SLOW).listening()
      const records = await recordsOf(second.url, id)
      const returned = members.map((member) => {
        member.close()
        const again = volunteer(second.url, { self: member.self, stepMs: 2 })
        if (member.held !== undefined) again.held = member.held
        return again
      })
      await Promise.all(returned.map((member) => member.heard('finished')))
      const { entries, chain } = await opened(dataDir)
      assert.deepEqual(
        entries.filter(({ type }) => type === 'rewind'),
        [],
        'nothing was taken back',
      )
      assert.deepEqual(chain.slice(0, records.length), records, 'what was committed before is on the chain')
      const blocks = chain.flatMap((record) => record.blocks)
      assert.deepEqual([blocks.length, new Set(blocks).size], [EPOCHS * BLOCKS, EPOCHS * BLOCKS])
    },
  )

/** The journal as the next coordinator reads it. */
async function opened(dataDir: string) {
  const store = openSqliteState(join(dataDir, 'state.db'))
  const [job] = await store.jobs()
  if (job === undefined) assert.fail('the job is there')
  const rows = await store.takeOver(job.id, 0, (all) => all)
  const chain = await store.records(job.id, 1, 1000)
  await store.close()
  const { head } = replay(readJob(job, DEFAULT_TIMING).config, rows).chain
  assert.equal(chain.length, head.v)
  return { entries: rows.map(({ entry }) => entry), chain }
}

test(
  'a second start on a folder in use is told who uses it, and changes nothing there',
  { timeout: 60_000 },
  async () => {
    const dataDir = await temporaryFolder()
    const coordinator = await startCoordinator({ dataDir })
    const { id } = await submit(coordinator.url, smallJob())
    const before = (await runOf(coordinator.url, id)).generation
    const second = start(dataDir)
    assert.equal(await second.ended, 1)
    assert.match(
      second.stderr.join('\n'),
      new RegExp(`process ${process.pid} on .*, at ${coordinator.url}; .*--take-over \\(folder-in-use\\)`),
    )
    assert.equal((await runOf(coordinator.url, id)).generation, before)
    assert.equal((await fetch(`${coordinator.url}${ROUTES.readyz}`)).status, 200)
  },
)

test(
  'a coordinator that is displaced on purpose ends by itself, and its volunteers go on at the same address',
  { timeout: 120_000 },
  async () => {
    const dataDir = await temporaryFolder()
    const first = start(dataDir)
    const { url, port } = await first.listening()
    const { id } = await submit(url, smallJob({ stop: { epochs: EPOCHS }, volunteers: { min: 1 } }))
    const member = volunteer(url, { stepMs: SLOW_STEP_MS })
    const { version } = await until(url, 'steps', (run) => run.version.v >= 5)
    const second = spawnCoordinator([
      '--json',
      '--port',
      String(port),
      '--data-dir',
      dataDir,
      '--token',
      TOKEN,
      '--timing',
      JSON.stringify(QUICK),
      '--take-over',
    ])
    assert.equal(await member.closed, CLOSE_AWAY)
    assert.equal(await first.ended, 3)
    assert.match(
      first.stderr.join('\n'),
      /expected this coordinator to own the data folder, got process \d+ on .*, which took over/,
    )
    assert.equal((await second.listening()).url, url)
    assert.ok((await runOf(url, id)).version.v >= version.v, 'nothing committed was lost')
    const again = volunteer(url, { self: member.self, stepMs: 2 })
    if (member.held !== undefined) again.held = member.held
    await until(url, 'more steps', (run) => run.version.v > version.v + 3)
  },
)

test(
  'an owner whose beat was late and put its card back is displaced all the same, and the one after it is not',
  { timeout: 60_000 },
  async () => {
    const folder = await temporaryFolder()
    const file = join(folder, 'coordinator.json')
    const idOnCard = async () => (JSON.parse(await readFile(file, 'utf8')) as { id: string }).id
    const displaced: string[] = []
    let onDisplaced = (): void => undefined
    const stepsDown = new Promise<void>((resolve) => {
      onDisplaced = resolve
    })
    const first = await FolderOwner.claim(folder, { takeOver: false, onDisplaced: () => onDisplaced() })
    const [card, id] = [await readFile(file, 'utf8'), await idOnCard()]
    const taking = FolderOwner.claim(folder, { takeOver: true, onDisplaced: () => displaced.push('second') })
    while ((await idOnCard()) === id) await delay(1)
    await writeFile(`${file}.late`, card)
    await rename(`${file}.late`, file)
    await stepsDown
    await first.release()
    const second = await taking
    await writeFile(`${file}.late`, card)
    await rename(`${file}.late`, file)
    while ((await idOnCard()) === id) await delay(10)
    assert.deepEqual(displaced, [])
    await second.release()
  },
)

test('a coordinator says where it listens while its last beat is still being written', async () => {
  const folder = await temporaryFolder()
  const owner = await FolderOwner.claim(folder, { takeOver: false, onDisplaced: () => undefined })
  const ports = Array.from({ length: 20 }, (_, i) => `http://127.0.0.1:${8000 + i}`)
  await Promise.all(ports.map((url) => owner.listensAt(url)))
  const card = JSON.parse(await readFile(join(folder, 'coordinator.json'), 'utf8')) as { readonly url: string }
  assert.equal(card.url, ports.at(-1))
  await owner.release()
})

test('after SIGKILL the next start goes on at once', { timeout: 60_000 }, async () => {
  const dataDir = await temporaryFolder()
  const first = start(dataDir)
  const { port } = await first.listening()
  first.child.kill('SIGKILL')
  await first.ended
  const claimed = performance.now()
  const fence = await FolderOwner.claim(dataDir, { takeOver: false, onDisplaced: () => undefined })
  const waited = performance.now() - claimed
  assert.ok(waited < 2000, `waited ${waited} ms for a dead process`)
  await fence.release()
  const second = spawnCoordinator(['--json', '--port', String(port), '--data-dir', dataDir, '--token', TOKEN])
  assert.equal((await second.listening()).port, port)
})

test(
  'an owner on another machine counts as alive while its card beats, and as dead when it does not',
  { timeout: 60_000 },
  async () => {
    const folder = await temporaryFolder()
    const claim = () => FolderOwner.claim(folder, { takeOver: false, onDisplaced: () => undefined })
    const elsewhere = await claim()
    await elsewhere.listensAt('http://elsewhere:8790')
    // The lock of another machine is not seen here; its card is.
    const file = join(folder, 'coordinator.json')
    const card = { ...JSON.parse(await readFile(file, 'utf8')), id: 'elsewhere', machine: 'another', host: 'elsewhere' }
    await elsewhere.release()
    let beat = 0
    const write = async (): Promise<void> => {
      await writeFile(`${file}.next`, JSON.stringify({ ...card, beat: ++beat }))
      await rename(`${file}.next`, file)
    }
    await write()
    const beating = setInterval(() => void write(), 200)
    try {
      await assert.rejects(
        claim(),
        (error) =>
          isGridError(error) && error.code === 'folder-in-use' && error.message.includes('http://elsewhere:8790'),
      )
    } finally {
      clearInterval(beating)
    }
    await (await claim()).release()
  },
)

test(
  'one damaged job is listed with its error and left as it is, and the others go on',
  { timeout: 60_000 },
  async () => {
    const dataDir = await temporaryFolder()
    const coordinator = await startCoordinator({ dataDir })
    const [torn, contradictory, whole] = [
      (await submit(coordinator.url, smallJob())).id,
      (await submit(coordinator.url, smallJob())).id,
      (await submit(coordinator.url, smallJob({ volunteers: { min: 1 } }))).id,
    ]
    await coordinator.stop()
    const database = new Database(join(dataDir, 'state.db'))
    const rowOf = (id: string, entry: string) =>
      database
        .prepare('INSERT INTO journal (job, at, entry) VALUES ((SELECT number FROM jobs WHERE id = ?), 1, ?)')
        .run(id, entry)
    rowOf(torn, '{"type":"comm')
    const record = {
      v: 7,
      generation: 1,
      modeEpoch: 0,
      kind: 'ring',
      blocks: ['0:0'],
      samples: 1,
      targets: 1,
      lossSum: 1,
      correct: 0,
      gradDigest: '0'.repeat(64),
    }
    rowOf(contradictory, JSON.stringify({ type: 'commit', records: [record] }))
    const rowsOf = (id: string) =>
      database
        .prepare('SELECT at, entry FROM journal WHERE job = (SELECT number FROM jobs WHERE id = ?) ORDER BY number')
        .all(id).length
    const before = [rowsOf(torn), rowsOf(contradictory)]
    const lines: string[] = []
    const { url } = await startCoordinator({ dataDir, log: ({ message }) => lines.push(message) })
    const { jobs, damaged } = (await (await fetch(`${url}${ROUTES.jobs}`, { headers: OWNER })).json()) as {
      jobs: { job: { id: string } }[]
      damaged: { id: string; code: string; message: string }[]
    }
    assert.deepEqual(
      jobs.map(({ job }) => job.id),
      [whole],
    )
    assert.deepEqual(
      damaged.map(({ id, code }) => [id, code]),
      [
        [torn, 'journal-damaged'],
        [contradictory, 'journal-damaged'],
      ],
    )
    assert.match(damaged[1]?.message ?? '', /record 7 cannot follow version 0/)
    assert.deepEqual(
      lines,
      damaged.map(({ message }) => message),
    )
    const answer = await fetch(`${url}${pathTo(ROUTES.job, { id: torn })}`, { headers: OWNER })
    assert.deepEqual([answer.status, ((await answer.json()) as { code: string }).code], [500, 'journal-damaged'])
    await volunteer(url).heard('finished')
    assert.deepEqual([rowsOf(torn), rowsOf(contradictory)], before, 'their rows are untouched')
    database.close()
  },
)
