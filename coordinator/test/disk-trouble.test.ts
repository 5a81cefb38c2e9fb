// A disk that fails: the run pauses with a named note and goes on when there is space; nothing unsaved was ever sent
// (R1).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CLOSE_AWAY, GridError, pathTo, ROUTES } from '@starling-grid/protocol'
import { memoryBlobs } from '../src/blobs/memory.ts'
import { memoryState } from '../src/journal/memory.ts'
import type { StateStore } from '../src/journal/state-store.ts'
import { OWNER, runOf, smallJob, startCoordinator, submit, until, volunteer } from './fixture.ts'

/** A journal whose n-th append and the ones after it fail while `broken` says so. */
function fragile(broken: (append: number) => boolean): { readonly store: StateStore; readonly failures: () => number } {
  const store = memoryState()
  let appends = 0
  let failures = 0
  const append: StateStore['append'] = async (...args) => {
    if (broken(++appends)) {
      failures++
      throw new GridError('disk-failed', 'no space left on device')
    }
    return store.append(...args)
  }
  return { store: { ...store, append }, failures: () => failures }
}

test('with a full disk nothing is sent; with space again the run goes on to its end', async () => {
  let full = false
  const { store, failures } = fragile(() => full)
  const lines: string[] = []
  const { url } = await startCoordinator({
    storage: { store, blobs: memoryBlobs() },
    log: ({ message }) => lines.push(message),
  })
  const { id } = await submit(url, smallJob({ stop: { epochs: 8 } }))
  const members = [volunteer(url, { stepMs: 20 }), volunteer(url, { stepMs: 20 })]
  await until(url, 'the first steps', (run) => run.version.v > 3)
  full = true
  const paused = await until(url, 'the pause', (run) => run.reason.startsWith('paused: '))
  assert.match(paused.reason, /no space left on device \(disk-failed\)/)
  const durable = (await store.load(paused.job.id)).length
  const heard = members.map(({ messages }) => messages.length)
  await new Promise((resolve) => setTimeout(resolve, 300))
  assert.deepEqual(
    members.map(({ messages }) => messages.length),
    heard,
    'nothing leaves while nothing is durable',
  )
  const rows = await store.load(paused.job.id)
  assert.equal(rows.length, durable)
  const committed = rows.flatMap(({ entry }) =>
    entry.type === 'commit' || entry.type === 'start' ? entry.records : [],
  )
  const { version, samplesCommitted } = await runOf(url, id)
  assert.deepEqual(
    [version.v, samplesCommitted],
    [committed.length, committed.reduce((sum, { samples }) => sum + samples, 0)],
    'what people see is durable',
  )
  assert.deepEqual(
    (
      (await (await fetch(`${url}${pathTo(ROUTES.records, { id })}`, { headers: OWNER })).json()) as {
        records: unknown
      }
    ).records,
    committed,
  )
  full = false
  await Promise.all(members.map((member) => member.heard('finished')))
  assert.ok(failures() > 0, 'the fault happened')
  assert.equal((await runOf(url, id)).version.v, 72)
  assert.equal(lines.filter((line) => line.startsWith('paused')).length, 1, lines.join('\n'))
})

test('each append fails once in turn, and the run still ends with every step durable', async () => {
  const { store, failures } = fragile((append) => append % 2 === 1)
  const { url } = await startCoordinator({ storage: { store, blobs: memoryBlobs() } })
  const { id } = await submit(url, smallJob({ stop: { epochs: 1 }, volunteers: { min: 1 } }))
  await volunteer(url).heard('finished')
  const run = await runOf(url, id)
  const rows = await store.load(run.job.id)
  assert.equal(rows.flatMap(({ entry }) => (entry.type === 'commit' ? entry.records : [])).length, run.version.v)
  assert.ok(failures() > 3)
})

test('while it drains it is not ready, and what was decided is durable when it has stopped', async () => {
  const store = memoryState()
  let release = (): void => undefined
  const slow = new Promise<void>((resolve) => {
    release = resolve
  })
  let stopping = false
  let begin = (): void => undefined
  const begun = new Promise<void>((resolve) => {
    begin = resolve
  })
  const append: StateStore['append'] = async (...args) => {
    if (stopping) begin()
    if (stopping) await slow
    return store.append(...args)
  }
  const coordinator = await startCoordinator({ storage: { store: { ...store, append }, blobs: memoryBlobs() } })
  const { url } = coordinator
  const { id } = await submit(url, smallJob({ stop: { epochs: 1000 }, volunteers: { min: 1 } }))
  volunteer(url, { stepMs: 5 })
  await until(url, 'steps', (run) => run.version.v > 3)
  const run = coordinator.runs.find(id) ?? assert.fail()
  stopping = true
  await begun
  const head = run.state.chain.head.v
  const stopped = coordinator.stop()
  assert.equal((await fetch(`${url}${ROUTES.readyz}`)).status, 503)
  assert.equal((await fetch(`${url}${ROUTES.healthz}`)).status, 200)
  release()
  await stopped
  const rows = await store.load(run.job.id)
  const durable = rows.flatMap(({ entry }) => (entry.type === 'commit' ? entry.records : [])).length
  assert.ok(durable >= head, `${durable} steps are durable, ${head} were decided when it was told to stop`)
})

test('a coordinator that was taken over answers what waits, says why it is not ready, and ends', async () => {
  const store = memoryState()
  let hold = Promise.resolve()
  const append: StateStore['append'] = async (...args) => {
    await hold
    return store.append(...args)
  }
  const lines: string[] = []
  let told: (why: string) => void = () => undefined
  const ended = new Promise<string>((resolve) => {
    told = resolve
  })
  const { url, runs } = await startCoordinator({
    storage: { store: { ...store, append }, blobs: memoryBlobs() },
    log: ({ level, message }) => level === 'warn' && lines.push(message),
    onDeposed: told,
  })
  const { id } = await submit(url, smallJob({ stop: { epochs: 1000 }, volunteers: { min: 1 }, mode: 'async' }))
  const member = volunteer(url, { works: false })
  const grant = await member.heard('grant')
  const run = runs.find(id) ?? assert.fail()
  let release = (): void => undefined
  hold = new Promise((resolve) => {
    release = resolve
  })
  const push = member.push(grant)
  await until(url, 'the push', () => run.state.open.blocks.size > 0 || run.state.chain.head.v > 0)
  await store.takeOver(run.job.id, 1, () => undefined)
  release()
  assert.deepEqual([(await push).status, (await push).code], [503, 'coordinator-leaving'])
  assert.equal(await member.closed, CLOSE_AWAY, 'volunteers dial the same address again')
  const probe = await fetch(`${url}${ROUTES.readyz}`)
  assert.deepEqual(
    [probe.status, ((await probe.json()) as { reason: string }).reason.includes('lease-stale')],
    [503, true],
  )
  assert.equal((await fetch(`${url}${pathTo(ROUTES.export, { id })}`)).status, 503)
  const head = run.state.chain.head.v
  run.feed({ type: 'tick' })
  assert.match(await ended, /expected job .* under this coordinator's fence \d+, got fence \d+ of another/)
  assert.equal(run.state.chain.head.v, head, 'it decides nothing any more')
  assert.equal(lines.length, 1, lines.join('\n'))
  assert.equal((await store.load(run.job.id)).at(-1)?.entry.type, 'fence')
  await assert.rejects(fetch(`${url}${ROUTES.healthz}`))
})

test('a defect in the middle of a decision costs no row that the state has already', async () => {
  const store = memoryState()
  const { url, runs } = await startCoordinator({ storage: { store, blobs: memoryBlobs() } })
  const { id } = await submit(url, smallJob({ stop: { epochs: 1000 }, volunteers: { min: 1 } }))
  volunteer(url, { stepMs: 20 })
  await until(url, 'steps', ({ version }) => version.v > 1)
  const run = runs.find(id) ?? assert.fail()
  const [member] = run.state.members.values()
  // Read behind the journal entry of a ballot, and never again.
  let broken = false
  const { state } = run
  const real = state.members
  Object.defineProperty(state, 'members', {
    configurable: true,
    get: () => {
      const behind = new Error().stack?.includes('openBallot') === true
      if (behind && !broken) {
        broken = true
        throw new Error('internal: a defect for this test')
      }
      return real
    },
  })
  const before = state.generation
  run.feed({ type: 'member-lost', member: member?.id ?? assert.fail(), reason: 'test', expected: false })
  const { generation } = state
  assert.ok(broken && generation > before, 'the defect was met behind the entry')
  await run.stop()
  const ballots = (await store.load(run.job.id)).map(({ entry }) => (entry.type === 'ballot' ? entry.generation : 0))
  assert.ok(
    ballots.includes(generation),
    `ballot ${generation} is in the state, and these are in the journal: ${ballots.join(' ')}`,
  )
})
