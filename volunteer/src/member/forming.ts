// From FORM to CONFIRM on one member: which links to open, and how to reach the target (R7). Pure; member.ts decides
// the rest.
import {
  extend,
  fold,
  type MemberId,
  type MessageTo,
  sameVersion,
  type StepRecord,
  type VersionRef,
} from '@starling-grid/protocol'
import { settle } from './committed.ts'
import { type MemberCore, type MemberEffect, neighbours, type MemberGeneration } from './member-state.ts'

/** FORM: who is in the ring, and the version that each must reach (R5, R7). */
export function onForm(core: MemberCore, order: MessageTo<'form'>): MemberEffect[] {
  if (order.generation !== core.promised || order.generation === core.ring?.generation) return []
  const rank = order.members.indexOf(core.id)
  const reached = fold(order.committed, order.records)
  if (rank < 0 || order.members.length !== order.weights.length || reached?.id !== order.target.id) return []
  const ring: MemberGeneration = {
    ...order,
    rank,
    linksOpen: false,
    stage: 'forming',
    plan: new Map(),
    moves: new Map(),
    lastStep: Number.POSITIVE_INFINITY,
    flight: undefined,
    checkpoint: undefined,
    givenSums: new Map(),
    copyAt: undefined,
  }
  core.ring = ring
  core.learning = undefined
  core.proving = undefined
  if (order.anew) core.version = undefined
  const links: MemberEffect = {
    type: 'open-links',
    generation: order.generation,
    neighbours: neighbours(ring),
    relayed: relayedNeighbours(ring),
    relayedSources: order.relayedSources ?? [],
  }
  return [links, ...reach(core, ring)]
}

/** R7: at the target already; some reduced gradients away from it; or anywhere else, in need of everything. */
function reach(core: MemberCore, ring: MemberGeneration): MemberEffect[] {
  const { generation, target } = ring
  if (core.version !== undefined && sameVersion(core.version, target)) return confirmIfReady(core, ring)
  const next = nextOnTheWay(core, ring)
  const sources = otherSources(core, ring)
  if (next !== undefined && sources.length > 0 && target.v - next.version.v < core.replayMost)
    return [{ type: 'fetch-reduced', generation, record: next.record, target: next.version, sources }]
  return fetchWhole(core, ring)
}

/** The record that follows what is held, when that is on the way to the target. */
function nextOnTheWay(
  { version }: MemberCore,
  { committed, records }: MemberGeneration,
): { readonly record: StepRecord; readonly version: VersionRef } | undefined {
  const next = (version?.v ?? -1) - committed.v
  const record = records[next]
  if (version === undefined || record === undefined) return undefined
  const way = fold(committed, records.slice(0, next))
  return way !== undefined && sameVersion(way, version) ? { record, version: extend(version, record) } : undefined
}

export function fetchWhole(core: MemberCore, ring: MemberGeneration): MemberEffect[] {
  const { generation, target, coordinatorHolds } = ring
  return [{ type: 'fetch-state', generation, target, sources: otherSources(core, ring), coordinatorHolds }]
}

function otherSources(core: MemberCore, { sources }: MemberGeneration): MemberId[] {
  return sources.filter((source) => source !== core.id)
}

/** Those of the neighbours that are reached through the coordinator (R18). */
function relayedNeighbours({ members, relayed, rank }: MemberGeneration): MemberId[] {
  const ranks = relayed.filter((pair) => pair.includes(rank)).map(([a, b]) => (a === rank ? b : a))
  return [...new Set(ranks)].flatMap((rank) => members[rank] ?? [])
}

export function adopt(core: MemberCore, ring: MemberGeneration, fetched: VersionRef): MemberEffect[] {
  if (!sameVersion(fetched, ring.target) || (core.version !== undefined && sameVersion(core.version, fetched)))
    return []
  setVersion(core, ring.target, ring)
  return [{ type: 'adopt', version: ring.target }, ...confirmIfReady(core, ring)]
}

/** A learner's proof is what FORM told: the committed version and the records since. */
function setVersion(core: MemberCore, version: VersionRef, { committed, records }: MemberGeneration): void {
  core.version = version
  settle(core, committed)
  core.tail = records.slice(0, version.v - committed.v)
}

/** R7: apply the fetched sum if, and only if, still at its parent; then the next one, or CONFIRM. */
export function catchUp(core: MemberCore, ring: MemberGeneration, fetched: VersionRef): MemberEffect[] {
  const next = nextOnTheWay(core, ring)
  if (next === undefined || !sameVersion(fetched, next.version)) return []
  setVersion(core, next.version, ring)
  return [{ type: 'apply', ...next }, ...reach(core, ring)]
}

export function confirmIfReady(core: MemberCore, ring: MemberGeneration): MemberEffect[] {
  const there = core.version !== undefined && sameVersion(core.version, ring.target)
  if (ring.stage !== 'forming' || !ring.linksOpen || !there) return []
  ring.stage = 'ready'
  return [{ type: 'confirm', fence: ring.fence, generation: ring.generation, version: ring.target }]
}
