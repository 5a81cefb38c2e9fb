// What one coordinator carries: volunteers that lease and push over real sockets, durable events of its journal, and
// shards served. Each beside the least that anything on this machine needs for it.
import { journalRows } from './journal.ts'
import { leaseRows } from './leases.ts'
import { type BenchRow } from './row.ts'
import { shardRow } from './served-shards.ts'
import { isWanted, type SuiteOptions } from './suite.ts'
import { takeoverRows } from './takeover.ts'

export async function coordinatorSuite(options: SuiteOptions): Promise<BenchRow[]> {
  const rows: BenchRow[] = []
  if (isWanted(options, 'journal')) rows.push(...(await journalRows(options)))
  if (isWanted(options, 'shards')) rows.push(await shardRow(options))
  if (isWanted(options, 'leases')) rows.push(...(await leaseRows(options)))
  if (isWanted(options, 'takeover')) rows.push(...(await takeoverRows(options)))
  return rows
}
