// A newcomer catches up while the ring runs without it, so that no member waits for it at the next ballot. It fetches a
// copy of a committed version, then follows the steps since by their reduced gradients. Each is applied iff at its
// parent (R7). It is no member before START and no source; what it claims is an old version, which R4 makes a
// learner's. Pure.
import { extend, fold, type MessageTo, sameVersion, type VersionRef } from '@starling-grid/protocol'
import { settle, startFrom } from './committed.ts'
import type { MemberCore, MemberEffect } from './member-state.ts'

export function onPrefetch(core: MemberCore, order: MessageTo<'prefetch'>): MemberEffect[] {
  const { fence, generation, version, sources, coordinatorHolds } = order
  const { learning } = core
  const again =
    learning?.generation === generation && learning.fetching !== undefined && sameVersion(learning.version, version)
  if (generation < core.promised || core.ring !== undefined || core.asyncEpoch !== undefined || again) return []
  core.fence = fence
  core.promised = generation
  core.learning = { fence, generation, version, records: [], sources, fetching: version, reportAt: 0 }
  if (order.anew) core.version = undefined
  // What was never committed is given up in a ballot or not at all: others may have lost it (R6).
  if (core.version !== undefined && !onlyCommitted(core)) return ready(core, null)
  if (core.version !== undefined && core.version.v >= version.v) return ready(core, core.version)
  return [{ type: 'fetch-state', generation, target: version, sources, coordinatorHolds }]
}

function onlyCommitted({ base, tail, version }: MemberCore): boolean {
  return tail.length === 0 && version !== undefined && sameVersion(base, version)
}

/** The state is here and whole: adopted at once, since no member depends on what this newcomer holds. */
export function onLearnerState(core: MemberCore, generation: number, version: VersionRef): MemberEffect[] {
  const { learning } = core
  if (
    core.ring !== undefined ||
    learning?.generation !== generation ||
    learning.fetching === undefined ||
    !sameVersion(version, learning.fetching)
  )
    return []
  core.version = version
  startFrom(core, version)
  return [{ type: 'adopt', version }, ...ready(core, version), ...proofDue(core)]
}

function ready(core: MemberCore, version: VersionRef | null): MemberEffect[] {
  const { learning } = core
  if (learning === undefined) return []
  learning.fetching = undefined
  return [
    { type: 'send', message: { type: 'prefetched', fence: learning.fence, generation: learning.generation, version } },
  ]
}

/** More steps were committed. */
export function onFollow(
  core: MemberCore,
  { fence, generation, records, sources }: MessageTo<'follow'>,
): MemberEffect[] {
  if (
    core.ring !== undefined ||
    core.asyncEpoch !== undefined ||
    generation < core.promised ||
    core.version === undefined ||
    !onlyCommitted(core)
  )
    return []
  core.fence = fence
  core.promised = generation
  if (core.learning?.generation !== generation)
    // a ballot came between
    core.learning = { fence, generation, version: core.version, records: [], sources, fetching: undefined, reportAt: 0 }
  const { learning } = core
  const known = new Set(learning.records.map(({ v }) => v))
  learning.records = [...learning.records, ...records.filter(({ v }) => !known.has(v))]
  learning.sources = sources
  return goOn(core)
}

/** The reduced gradient of the next step, one at a time. */
function goOn(core: MemberCore): MemberEffect[] {
  const { learning, version } = core
  if (learning === undefined || learning.fetching !== undefined || version === undefined) return []
  learning.records = learning.records.filter(({ v }) => v > version.v)
  const record = learning.records.find(({ v }) => v === version.v + 1)
  if (record === undefined) return []
  learning.fetching = extend(version, record)
  return [
    {
      type: 'fetch-reduced',
      generation: learning.generation,
      record,
      target: learning.fetching,
      sources: learning.sources,
    },
  ]
}

/** R7: applied iff still at its parent. */
export function onLearnerReduced(core: MemberCore, generation: number, fetched: VersionRef): MemberEffect[] {
  const { learning, version } = core
  const record = learning?.records.find(({ v }) => v === fetched.v)
  if (
    core.ring !== undefined ||
    learning?.generation !== generation ||
    version === undefined ||
    record === undefined ||
    learning.fetching === undefined
  )
    return []
  const next = fold(version, [record])
  if (next === undefined || !sameVersion(next, fetched)) return []
  core.version = next
  core.tail = [record]
  settle(core, next)
  learning.fetching = undefined
  const report = next.v < learning.reportAt ? [] : ready(core, next)
  if (report.length > 0) learning.reportAt = learning.records.at(-1)?.v ?? next.v
  return [{ type: 'apply', record, version: next }, ...proofDue(core), ...report, ...goOn(core)]
}

/** No source can send what is missing: the coordinator offers another version, or the rest comes at FORM. */
export function learningFailed(core: MemberCore, generation: number): MemberEffect[] {
  const { learning } = core
  if (learning?.generation !== generation || core.ring !== undefined) return []
  learning.records = []
  return ready(core, null)
}

/** To be admitted it shows that it holds a version: this one, now or when it reaches it. */
export function prove(core: MemberCore, order: MessageTo<'prove'>): MemberEffect[] {
  const { fence, generation } = order
  if (generation < core.promised || core.ring !== undefined || core.asyncEpoch !== undefined) return []
  core.fence = fence
  core.promised = generation
  core.proving = order
  return proofDue(core)
}

/** A version that it went past is none that it can show. */
function proofDue(core: MemberCore): MemberEffect[] {
  const { proving, version } = core
  if (proving === undefined || version === undefined || version.v < proving.v) return []
  core.proving = undefined
  if (version.v === proving.v) return [{ type: 'prove', order: proving }]
  const { fence, generation, salt } = proving
  return [{ type: 'send', message: { type: 'proof', fence, generation, salt, digest: null, linked: [] } }]
}

/** At the version that was named, a member puts a copy of its state aside, for newcomers to fetch while it goes on. */
export function copyDue({ ring, version }: MemberCore): MemberEffect[] {
  if (ring?.stage !== 'running' || version === undefined || ring.copyAt?.v !== version.v) return []
  const { fence, generation } = ring
  const { salt } = ring.copyAt
  ring.copyAt = undefined
  return [{ type: 'copy', fence, generation, version, salt }]
}
