// A step that no ring made: what a liar needs so that its claim of it looks like any other.
import type { RunState } from '@starling-grid/coordinator/run'
import { extend, sameVersion } from '@starling-grid/protocol'
import { madeUp, undone } from '../world/faults/kept.ts'
import { type History, plus } from '../world/history.ts'
import type { Kept } from './volunteer-process.ts'

/** On top of the committed version, which this member holds; undefined: it does not, or nothing is left to train. */
export function inventedStep(state: RunState, history: History, { replica, claim }: Kept): Kept | undefined {
  const generation = [...state.rings.keys()].at(-1)
  const blocks = undone(state).slice(0, state.config.batchBlocks)
  const isHead = sameVersion(replica.version, state.chain.head)
  if (!isHead || generation === undefined || blocks.length === 0 || state.mode === 'async') return undefined
  const record = madeUp(state.chain.head, state, { generation, blocks })
  const version = extend(replica.version, record)
  history.record(replica.version, record, version)
  return {
    replica: { version, counts: plus(replica.counts, history.gradient(blocks)) },
    claim: { base: claim.base, records: [...claim.records, record] },
  }
}
