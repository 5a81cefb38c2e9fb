// FORM as a coordinator sends it to a ring whose members hold its version already.
import type { MemberId, MessageTo, VersionRef } from '@starling-grid/protocol'

/** Equal weights, no relays; `target` is committed. */
export function formOf(
  members: readonly MemberId[],
  target: VersionRef,
  changed: Partial<MessageTo<'form'>> = {},
): MessageTo<'form'> {
  return {
    type: 'form',
    fence: 1,
    generation: 1,
    members: [...members],
    weights: members.map(() => 1),
    relayed: [],
    committed: target,
    records: [],
    target,
    sources: [],
    coordinatorHolds: true,
    modeEpoch: 0,
    kind: 'ring',
    ...changed,
  }
}
