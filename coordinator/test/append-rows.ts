// A process that appends rows until it is killed, and says on stdout which of them are durable.
import { writeSync } from 'node:fs'
import { jobId, trainingBlock } from '@starling-grid/protocol'
import { openSqliteState } from '../src/journal/sqlite.ts'

const STDOUT = 1
const JOB = jobId('j')
const store = openSqliteState(process.argv[2] ?? '')
if ((await store.jobs()).length === 0) await store.createJob({ id: JOB, description: '{}' })
const rows = await store.takeOver(JOB, 0, (all) => all)
const fence = Math.max(...rows.map(({ entry }) => (entry.type === 'fence' ? entry.fence : 0)))
for (let number = rows.filter(({ entry }) => entry.type === 'quarantine').length + 1; ; number++) {
  await store.append(JOB, fence, [{ at: 0, entry: { type: 'quarantine', block: trainingBlock(0, number) } }])
  // Synchronous: what was not written yet would die with the process.
  writeSync(STDOUT, `${number}\n`)
}
