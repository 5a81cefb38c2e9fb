// What one coordinator carries: volunteers that lease and push over real sockets, durable events of its journal, a
// restart with many of them, pushes taken in, and shards served. What another one does when it dies. Each beside its
// aim, and beside the least that anything on this machine needs for it.
import { requireEmptyDatabase } from './bench-database.ts'
import { journalRows } from './journal.ts'
import { leaseRows } from './leases.ts'
import { restartRows } from './restart.ts'
import { type BenchRow } from './row.ts'
import { shardRows } from './served-shards.ts'
import { isWanted, type SuiteOptions } from './suite.ts'
import { pushRows } from './taken-pushes.ts'
import { takeoverRows } from './takeover.ts'

export async function coordinatorSuite(suite: SuiteOptions): Promise<BenchRow[]> {
  const { STARLING_STATE: postgres } = process.env
  if (postgres === undefined) suite.log('without PostgreSQL: name an empty database in STARLING_STATE to measure it')
  // Each row says where its coordinators keep their state; none of them inherits it.
  delete process.env['STARLING_STATE']
  if (postgres !== undefined) await requireEmptyDatabase(postgres)
  const options = { ...suite, postgres }
  const rows: BenchRow[] = []
  if (isWanted(options, 'journal')) rows.push(...(await journalRows(options)))
  if (isWanted(options, 'restart')) rows.push(...(await restartRows(options)))
  if (isWanted(options, 'shards')) rows.push(...(await shardRows(options)))
  if (isWanted(options, 'pushes')) rows.push(...(await pushRows(options)))
  if (isWanted(options, 'leases')) rows.push(...(await leaseRows(options)))
  if (isWanted(options, 'takeover')) rows.push(...(await takeoverRows(options)))
  return rows
}
