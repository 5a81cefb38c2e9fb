// Is every block in the committed history exactly once? Read from the chain itself.
import type { BlockId, StepRecord } from '@starling-grid/protocol'

export interface ChainAudit {
  readonly blocksExpected: number
  readonly blocksCommitted: number
  /** blocks in no record */
  readonly lost: number
  /** times that a block is in a record beyond the first */
  readonly duplicated: number
}

/** `expected`: the blocks of one epoch times the epochs. */
export function auditChain(records: readonly StepRecord[], expected: number): ChainAudit {
  const seen = new Map<BlockId, number>()
  for (const record of records) for (const block of record.blocks) seen.set(block, (seen.get(block) ?? 0) + 1)
  const committed = [...seen.values()].reduce((sum, count) => sum + count, 0)
  return {
    blocksExpected: expected,
    blocksCommitted: committed,
    lost: expected - seen.size,
    duplicated: committed - seen.size,
  }
}
