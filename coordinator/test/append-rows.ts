// A process that appends rows until it is killed, and says on stdout which of them are durable.
import { writeSync } from 'node:fs'
import { jobId } from '@starling-grid/protocol'
import { openSqliteState } from '../src/journal/sqlite.ts'

const STDOUT = 1
const JOB = jobId('j')
const store = openSqliteState(process.argv[2] ?? '')
if ((await store.jobs()).length === 0) await store.createJob({ id: JOB, description: '{}' })
for (let gen = (await store.load(JOB)).length + 1; ; gen++) {
  await store.append(JOB, 1, [{ at: 0, entry: { type: 'ballot', gen } }])
  // Synchronous: what was not written yet would die with the process.
  writeSync(STDOUT, `${gen}\n`)
}
