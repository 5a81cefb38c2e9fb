// Promise 2: killed at any instant, the coordinator comes back by itself with everything it acknowledged.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { pathTo, ROUTES } from '@starling-grid/protocol'
import { spawnCoordinator } from './coordinator-process.ts'
import type { FakeVolunteer } from './fake-volunteer.ts'
import {
  OWNER,
  QUICK,
  recordsOf,
  runOf,
  smallJob,
  submit,
  temporaryFolder,
  TOKEN,
  until,
  volunteer,
} from './fixture.ts'

const EPOCHS = 8
const BLOCKS = 36
const STEP_MS = 25

async function start(dataDir: string, port: number) {
  const coordinator = spawnCoordinator([
    '--json',
    '--port',
    String(port),
    '--data-dir',
    dataDir,
    '--token',
    TOKEN,
    '--timing',
    JSON.stringify(QUICK),
  ])
  return { ...coordinator, ...(await coordinator.listening()) }
}

/** The same members on new sockets, with what they hold. */
function comeBack(url: string, members: readonly FakeVolunteer[]): FakeVolunteer[] {
  return members.map(({ self, held }) => {
    const again = volunteer(url, { self, stepMs: STEP_MS })
    if (held !== undefined) again.held = held
    return again
  })
}

for (const mode of ['ring', 'async'] as const)
  test(
    `killed twice in ${mode} mode, the run ends with every block once an epoch and its curve whole`,
    { timeout: 120_000 },
    async () => {
      const dataDir = await temporaryFolder()
      let coordinator = await start(dataDir, 0)
      const { url, port } = coordinator
      const { id } = await submit(url, smallJob({ mode, stop: { epochs: EPOCHS } }))
      let members = [volunteer(url, { stepMs: STEP_MS }), volunteer(url, { stepMs: STEP_MS })]
      for (const reach of [8, 25]) {
        await until(url, `version ${reach}`, (run) => run.version.v >= reach)
        const known = await recordsOf(url, id)
        coordinator.child.kill('SIGKILL')
        assert.equal(await coordinator.ended, 'SIGKILL')
        coordinator = await start(dataDir, port)
        if (mode === 'ring')
          assert.deepEqual((await recordsOf(url, id)).slice(0, known.length), known, 'nothing committed was lost')
        members = comeBack(url, members)
      }
      await Promise.all(members.map((member) => member.heard('finished')))
      const run = await runOf(url, id)
      const blocks = (await recordsOf(url, id)).flatMap((record) => record.blocks)
      assert.deepEqual([run.phase, blocks.length, new Set(blocks).size], ['finished', BLOCKS * EPOCHS, BLOCKS * EPOCHS])

      coordinator.child.kill('SIGKILL')
      await coordinator.ended
      coordinator = await start(dataDir, port)
      const again = await runOf(url, id)
      assert.deepEqual(
        [again.phase, again.version, again.finishedAt, again.samplesCommitted],
        ['finished', run.version, run.finishedAt, run.samplesCommitted],
      )
      assert.equal((await fetch(`${url}${pathTo(ROUTES.export, { id })}`, { headers: OWNER })).status, 200)
    },
  )
