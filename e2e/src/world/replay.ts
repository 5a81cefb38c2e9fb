// The invariant "replay" (R1): the journal rebuilds what the coordinator has to remember.
import { replay, type RunState, superseded } from '@starling-grid/coordinator/run'
import type { Row } from './chronicle.ts'
import type { Violations } from './violations.ts'

/** What was written down is what is known: a restart would go on from the same state. */
export function checkReplay(
  { violations }: { readonly violations: Violations },
  { state }: { readonly state: RunState },
  entries: readonly Row[],
): void {
  const [known, written] = [durable(state), replayed(state.config, entries)]
  if (known !== written) violations.report('replay', `the journal makes ${written}, the coordinator knows ${known}`)
  const kept = replayed(state.config, compacted(entries))
  if (kept !== written)
    violations.report('replay', `the journal makes ${written}, and ${kept} without what later rows supersede`)
}

/** What a coordinator reads makes what all rows of its run make, whatever a snapshot or a later row let go. */
export function checkStart(
  { violations }: { readonly violations: Violations },
  { state }: { readonly state: RunState },
  { handed, whole }: { readonly handed: readonly Row[]; readonly whole: readonly Row[] },
): void {
  const [read, written] = [replayed(state.config, handed), replayed(state.config, whole)]
  if (read !== written) violations.report('replay', `a coordinator starts with ${read}, its rows make ${written}`)
}

/** As the next take-over leaves it. */
function compacted(entries: readonly Row[]): readonly Row[] {
  const places = new Set(superseded(entries.map(({ entry }) => entry)))
  return entries.filter((_, place) => !places.has(place))
}

/** A journal that two wrote may lead nowhere. */
function replayed(config: RunState['config'], entries: Parameters<typeof replay>[1]): string {
  try {
    return durable(replay(config, entries))
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

function durable(state: RunState): string {
  const {
    fence,
    generation,
    chain,
    checkpoints,
    mode,
    modeEpoch,
    leasesReserved,
    quarantined,
    restorations,
    validated,
    finished,
    abandoned,
    rings,
    lostGenerations,
    forgottenGeneration,
    appended,
    config,
  } = state
  const results = [...validated].map(([id, blocks]) => [id, [...blocks]])
  const done = Array.from({ length: config.epochs }, (_, epoch) => chain.doneIn(epoch))
  return JSON.stringify([
    fence,
    generation,
    chain.head,
    chain.base,
    done,
    checkpoints,
    mode,
    modeEpoch,
    leasesReserved,
    [...quarantined],
    restorations,
    results,
    finished,
    abandoned,
    [...rings],
    lostGenerations,
    forgottenGeneration,
    appended,
  ])
}
