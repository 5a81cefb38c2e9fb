// A step that no ring made: what a liar needs so that its claim of it looks like any other.
import type { RunState } from '@starling-grid/coordinator/run'
import { type BlockId, digest, extend, sameVersion, type StepRecord, trainingBlock } from '@starling-grid/protocol'
import { type History, plus } from '../world/history.ts'
import type { Kept } from './volunteer-process.ts'

/** On top of the committed version, which this member holds; undefined: it does not, or nothing is left to train. */
export function inventedStep(state: RunState, history: History, { replica, claim }: Kept): Kept | undefined {
  const generation = [...state.rings.keys()].at(-1)
  const blocks = undone(state).slice(0, state.config.batchBlocks)
  const isHead = sameVersion(replica.version, state.chain.head)
  if (!isHead || generation === undefined || blocks.length === 0 || state.mode === 'async') return undefined
  const record = madeUp(state, generation, blocks)
  const version = extend(replica.version, record)
  history.record(replica.version, record, version)
  return {
    replica: { version, counts: plus(replica.counts, history.gradient(blocks)) },
    claim: { base: claim.base, records: [...claim.records, record] },
  }
}

/** Of the first epoch that is not complete. */
function undone({ chain, config }: RunState): BlockId[] {
  for (let epoch = 0; epoch < config.epochs; epoch++) {
    const blocks = Array.from({ length: config.blocks }, (_, index) => trainingBlock(epoch, index))
    const left = blocks.filter((block) => !chain.isDone(block))
    if (left.length > 0) return left
  }
  return []
}

function madeUp({ chain, mode, modeEpoch }: RunState, generation: number, blocks: readonly BlockId[]): StepRecord {
  return {
    v: chain.head.v + 1,
    generation,
    modeEpoch,
    kind: mode === 'local' ? 'round' : 'ring',
    blocks: [...blocks],
    samples: blocks.length,
    targets: blocks.length,
    lossSum: 0,
    correct: 0,
    gradDigest: digest(new TextEncoder().encode(`made up ${blocks.join()}`)),
  }
}
