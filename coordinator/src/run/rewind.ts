// Back to a checkpoint (R6): what followed it is cut off the chain and computed again.
import { forgetGuests } from './guests.ts'
import { newestCheckpoint } from './journal-replay.ts'
import type { Checkpoint } from './state.ts'
import type { Turn } from './turn.ts'

/**
 * R6: back to a checkpoint, by name and number of steps. `final`: what is cut off cannot come back with its holders.
 */
export function rewind(
  turn: Turn,
  why: string,
  { to = newestCheckpoint(turn.state), final = false }: { readonly to?: Checkpoint; readonly final?: boolean } = {},
): void {
  const { state } = turn
  const { version } = to
  turn.note(
    'rewind',
    `back from version ${state.chain.head.v} to checkpoint ${version.v}: ${state.chain.head.v - version.v} steps are repeated (${why})`,
  )
  turn.journal({ type: 'rewind', to: version, ...(final ? { final: true as const, gen: state.gen } : {}) })
  if (state.mode !== 'async') forgetGuests(turn)
  if ((state.checkpointAsked?.v ?? 0) > version.v) state.checkpointAsked = undefined
  if (state.config.off.has('R16')) turn.journal({ type: 'ballot', gen: 1 })
  turn.then({ type: 'ballot', reason: `went back to version ${version.v}`, trouble: false })
}
