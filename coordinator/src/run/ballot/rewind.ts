import { newestCheckpoint } from '../journal-replay.ts'
// Back to a checkpoint (R6): what followed it is cut off the chain and computed again.
import type { Checkpoint } from '../state.ts'
import type { Transition } from '../transition.ts'

/**
 * R6: back to a checkpoint, by name and number of steps. `final`: what is cut off cannot come back with its holders.
 */
export function rewind(
  transition: Transition,
  why: string,
  {
    to = newestCheckpoint(transition.state),
    final = false,
  }: { readonly to?: Checkpoint; readonly final?: boolean } = {},
): void {
  const { state } = transition
  const { version } = to
  transition.note(
    'rewind',
    `back from version ${state.chain.head.v} to checkpoint ${version.v}: ` +
      `${state.chain.head.v - version.v} steps are repeated (${why})`,
  )
  transition.journal({
    type: 'rewind',
    to: version,
    ...(final ? { final: true as const, generation: state.generation } : {}),
  })
  transition.tell(({ rewound }) => rewound?.(transition, 'rewind'))
  transition.enqueue({ type: 'ballot', reason: `went back to version ${version.v}`, trouble: false })
}
