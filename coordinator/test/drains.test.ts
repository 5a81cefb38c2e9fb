// SIGTERM during training: /readyz says no at once, the run ends its step and writes a checkpoint, and the process ends
// with 0. The next process goes on from there, even when every volunteer is gone.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { test } from 'node:test'
import { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import { ROUTES } from '@starling-grid/protocol'
import { spawnCoordinator } from './coordinator-process.ts'
import { QUICK, recordsOf, runOf, smallJob, submit, temporaryFolder, TOKEN, until, volunteer } from './fixture.ts'

const STARLING = fileURLToPath(new URL('../../bin/starling.mjs', import.meta.url))
const TIMING = JSON.stringify(QUICK)

async function start(dataDir: string, port: number, more: readonly string[] = []) {
  const base = ['--json', '--port', String(port), '--data-dir', dataDir, '--token', TOKEN, '--timing', TIMING]
  const coordinator = spawnCoordinator([...base, ...more])
  return { ...coordinator, ...(await coordinator.listening()) }
}

/** @throws AssertionError when the process ended without the line */
async function said({ stderr, ended }: Awaited<ReturnType<typeof start>>, text: string): Promise<void> {
  let isOver = false
  void ended.then(() => {
    isOver = true
  })
  while (!stderr.some((line) => line.includes(text))) {
    assert.equal(isOver, false, `"${text}" was expected among: ${stderr.join('\n')}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

test('told to end, a coordinator says that it is not ready, ends the step, and leaves with 0', async () => {
  const dataDir = await temporaryFolder()
  const first = await start(dataDir, 0)
  const { url, port } = first
  const { id } = await submit(url, smallJob({ stop: { epochs: 1000 } }))
  const members = [volunteer(url, { stepMs: 700 }), volunteer(url, { stepMs: 700 })]
  await until(url, 'three steps', ({ version }) => version.v >= 3)
  const known = await recordsOf(url, id)
  first.child.kill('SIGTERM')
  await said(first, 'draining')
  const ready = await fetch(url + ROUTES.readyz)
  assert.deepEqual([ready.status, await ready.json()], [503, { ready: false, reason: 'it drains' }])
  assert.match(ready.headers.get('retry-after') ?? '', /^\d+$/)
  assert.equal((await fetch(url + ROUTES.healthz)).status, 200, 'it still lives')
  assert.equal(await first.ended, 0)
  for (const member of members) await member.closed

  const second = await start(dataDir, port)
  const run = await runOf(url, id)
  assert.equal(run.checkpoint?.v, run.version.v, 'the checkpoint is of the last committed step')
  assert.deepEqual((await recordsOf(url, id)).slice(0, known.length), known)
  const reached = run.version.v
  // The volunteers of before are gone: these hold nothing.
  for (const name of ['newcomer 1', 'newcomer 2']) volunteer(url, { name, stepMs: 20 })
  const later = await until(url, 'further steps', ({ version }) => version.v >= reached + 3)
  assert.equal(later.job.id, id)
  const records = await recordsOf(url, id)
  assert.deepEqual(records.slice(0, known.length), known, 'no step was repeated')
  second.child.kill('SIGTERM')
  assert.equal(await second.ended, 0)
})

test('a volunteer process goes on with the next coordinator at the same address', { timeout: 240_000 }, async () => {
  const dataDir = await temporaryFolder()
  const first = await start(dataDir, 0)
  const { url, port } = first
  const { id } = await submit(url, smallJob({ stop: { epochs: 60 }, volunteers: { min: 1 } }))
  const cache = await temporaryFolder()
  const child = spawn(
    process.execPath,
    [STARLING, 'volunteer', url, '--executor', 'reference', '--log-format', 'json', '--name', 'marigold'],
    { cwd: tmpdir(), env: { ...process.env, STARLING_CACHE: cache }, stdio: ['ignore', 'ignore', 'pipe'] },
  )
  after(() => child.kill('SIGKILL'))
  let log = ''
  child.stderr.on('data', (data) => {
    log += String(data)
  })
  await until(url, 'some steps', ({ version }) => version.v >= 5, 120_000)
  first.child.kill('SIGTERM')
  assert.equal(await first.ended, 0)
  await start(dataDir, port)
  const reached = (await runOf(url, id)).version.v
  assert.ok(reached >= 5)
  const run = await until(url, 'further steps of the same member', ({ version }) => version.v > reached, 120_000)
  assert.deepEqual(
    run.members.map(({ name }) => name),
    ['marigold'],
  )
  const lines = log.trim().split('\n')
  for (const line of lines) assert.equal((JSON.parse(line) as { member: string }).member, 'marigold')
  assert.ok(
    lines.some((line) => line.includes('trains')),
    log,
  )
})
