// A run's state before anything happened, and what its journal makes of it.
import { initialSlices } from './aspects.ts'
import { applyEntry, seedCheckpoint } from './journal-replay.ts'
import { freshHealth } from './policy/generation-health.ts'
import { ChainIndex } from './queue/chain-index.ts'
import { LeaseIndex } from './queue/lease-index.ts'
import type { JournalEntry, RunConfig, RunState } from './state.ts'

export function createRunState(config: RunConfig): RunState {
  return {
    ...initialSlices(),
    config,
    fence: 0,
    generation: 0,
    chain: new ChainIndex(config.genesis, config.blocks),
    appended: [],
    checkpoints: [seedCheckpoint(config)],
    kept: [],
    released: [],
    mode: config.mode === 'auto' ? 'ring' : config.mode,
    modeEpoch: 0,
    modeReason: config.mode === 'auto' ? 'the ring is tried first' : 'asked for by the job',
    leasesReserved: 0,
    leaseEpoch: 0,
    quarantined: new Set(),
    restorations: 0,
    validated: new Map(),
    evaluations: [],
    trainedMs: 0,
    finished: undefined,
    paused: false,
    abandoned: [],
    rings: new Map(),
    lostGenerations: undefined,
    forgottenGeneration: 0,
    phase: { type: 'waiting' },
    phaseReason: '',
    members: new Map(),
    leases: new LeaseIndex(),
    workers: new Set(),
    heldBefore: new Map(),
    health: freshHealth(),
  }
}

export function replay(
  config: RunConfig,
  entries: Iterable<{ readonly entry: JournalEntry; readonly at: number }>,
): RunState {
  const state = createRunState(config)
  for (const { entry, at } of entries) applyEntry(state, entry, at)
  return state
}
