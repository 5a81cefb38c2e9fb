// A coordinator process on a folder that another one uses, with pauses where the fence is raised: gapMs before and
// after.
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { createCoordinator } from '@starling-grid/coordinator'
import { openFolderBlobs } from '../src/blobs/folder.ts'
import { openSqliteState } from '../src/journal/sqlite.ts'
import type { StateStore } from '../src/journal/state-store.ts'

const [dataDir = '', token = '', timing = '{}', gapMs = '0'] = process.argv.slice(2)
const store = openSqliteState(join(dataDir, 'state.db'))
const takeOver: StateStore['takeOver'] = async (...args) => {
  await store.load(args[0])
  await delay(Number(gapMs))
  const result = await store.takeOver(...args)
  await delay(Number(gapMs))
  return result
}
const blobs = await openFolderBlobs(join(dataDir, 'blobs'))
const coordinator = createCoordinator({
  dataDir,
  token,
  port: 0,
  timing: JSON.parse(timing),
  storage: { store: { ...store, takeOver }, blobs },
})
await coordinator.start()
process.stdout.write(`${JSON.stringify({ url: coordinator.url })}\n`)
