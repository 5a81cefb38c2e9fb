// The coordinator's journal is put back from a backup while the members of its ring live on.
import assert from 'node:assert/strict'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { Grid } from '@starling-grid/cli'
import Database from 'libsql'
import { finishesWhole, PACED, QUICK, tinyJob } from './small-job.ts'

const STEPS = 90
/** versions of which the backup knows nothing, and of which members keep the records */
const LOST = 12

test(
  'a coordinator with a restored journal continues with the steps that members hold, each once',
  { timeout: 300_000 },
  async () => {
    const grid = await Grid.start({ timing: QUICK })
    const journal = join(grid.dataDir, 'state.db')
    try {
      const job = await grid.submit(tinyJob({ stop: { steps: STEPS }, minVolunteers: 2 }))
      for (let i = 0; i < 2; i++) grid.addVolunteer(PACED)
      const reaches = (v: number) => grid.watch.waitFor(`version ${v}`, ({ run }) => (run?.version.v ?? 0) >= v && run)
      await reaches(5)
      await copyJournal(journal, `${journal}.backup`)
      const backedUp = (await grid.records(job)).length
      await reaches(backedUp + LOST)
      const lost = await grid.records(job)
      await grid.killCoordinator()
      for (const end of ['', '-wal', '-shm']) await rm(journal + end, { force: true })
      await copyJournal(`${journal}.backup`, journal)
      await grid.restartCoordinator()
      await finishesWhole(grid, job, STEPS)
      assert.deepEqual((await grid.records(job)).slice(0, lost.length), lost, 'what the backup did not know is there')
      assert.deepEqual(
        grid.watch.events.filter((event) => event.kind === 'rewind'),
        [],
      )
    } finally {
      await grid.stop()
    }
  },
)

/** As `sqlite3 state.db ".backup FILE"` does it, also of a file in use. */
async function copyJournal(from: string, to: string): Promise<void> {
  const database = new Database(from)
  database.exec(`VACUUM INTO '${to}'`)
  database.close()
}
