// What is committed as far as a member was told, and the records that led there. Its claims begin at `base`, and reach
// further down for a coordinator whose journal lost the rows since (R4).
import { extend, fold, PLAN_WINDOW, sameVersion, type StepRecord, type VersionRef } from '@starling-grid/protocol'
import type { MemberCore } from './member-state.ts'

/** Records that are kept below what is acknowledged: a claim then has as many as two plans at most. */
const PAST_MOST = PLAN_WINDOW

/** Everything up to `committed` is committed; the tail starts anew behind it. */
export function settle(core: MemberCore, committed: VersionRef): void {
  const steps = committed.v - core.base.v
  const reached = steps >= 0 && steps <= core.tail.length ? fold(core.base, core.tail.slice(0, steps)) : undefined
  if (reached === undefined || !sameVersion(reached, committed)) return startFrom(core, committed)
  remember(core, core.tail.splice(0, steps))
  core.base = committed
}

/** A committed version whose way there is not known. */
export function startFrom(core: MemberCore, committed: VersionRef): void {
  core.base = committed
  core.tail = []
  core.past = { base: committed, records: [] }
}

function remember({ past }: MemberCore, records: readonly StepRecord[]): void {
  past.records.push(...records)
  for (const old of past.records.splice(0, Math.max(0, past.records.length - PAST_MOST)))
    past.base = extend(past.base, old)
}
