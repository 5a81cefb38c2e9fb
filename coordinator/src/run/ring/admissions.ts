// Newcomers that stopped a ring and then did not confirm: how soon another of the same network may, and how many in a
// minute.
import type { MemberId } from '@starling-grid/protocol'
import { type Member, own, type RunState } from '../state.ts'
import type { Aspect } from '../transition.ts'

declare module '../state.ts' {
  interface Slices {
    admissions: Admissions
  }
}

export interface Admissions {
  /** newcomers that stopped a ring and did not confirm */
  failed: readonly FailedAdmission[]
}

export const admissions = { initial: () => ({ admissions: { failed: [] } }) } satisfies Aspect

/** A newcomer that was in a FORM and did not reach its version in time. */
interface FailedAdmission {
  /** its network, or its own id where that is not known */
  readonly network: string
  /** ms */
  readonly at: number
}

/** ms that newcomers of a network wait after one of them failed; twice as long with each one more */
const WAIT_MS = 60_000
/** ms after which a failure is forgotten */
const REMEMBERED_MS = 1_800_000
/** Failures of all networks in a minute after which no newcomer is admitted: each stops the ring for some seconds. */
const MOST_IN_A_MINUTE = 3
/** Failures that are kept. */
const MOST_KEPT = 256

export function noteFailedAdmission(state: RunState, id: MemberId, now: number): void {
  const { admissions, members } = state
  const kept = admissions.failed.filter(({ at }) => now - at < REMEMBERED_MS).slice(-(MOST_KEPT - 1))
  own(state, 'admissions').failed = [...kept, { network: members.get(id)?.network ?? id, at: now }]
}

/** Has it worked in a ring before, or may it stop one to be admitted? */
export function mayBeAdmitted(
  { admissions }: RunState,
  { id, network = id, stepsHeld }: Pick<Member, 'id' | 'network' | 'stepsHeld'>,
  now: number,
): boolean {
  if (stepsHeld > 0) return true
  const recent = admissions.failed.filter(({ at }) => now - at < REMEMBERED_MS)
  if (recent.filter(({ at }) => now - at < WAIT_MS).length >= MOST_IN_A_MINUTE) return false
  const ofNetwork = recent.filter((failure) => failure.network === network)
  const last = ofNetwork.at(-1)
  return last === undefined || now - last.at >= WAIT_MS * 2 ** (ofNetwork.length - 1)
}
