// A member's assignment of the step in flight, block by block: what is begun, and what may still go to others. Also
// when it is complete (R12), and when a part of its gradient may leave (R9). A block leaves the assignment only here,
// and only before it is begun, so that it never has two contributors. Pure.
import {
  type BlockId,
  isPartition,
  type Manifest,
  type MemberId,
  type MessageTo,
  assignmentsAfter,
  assignmentsOfStep,
  type ToCoordinator,
} from '@starling-grid/protocol'
import { givenNow, ownBlocks } from './given-sums.ts'
import type { Flight, MemberCore, MemberGeneration } from './member-state.ts'

export function newFlight(step: number, assignment: readonly BlockId[]): Flight {
  return {
    step,
    stage: 'computing',
    todo: [...assignment],
    begun: [],
    sealed: false,
    given: undefined,
    blockMs: 0,
    held: new Set(),
    over: new Set(),
    released: new Map(),
  }
}

/** What R9 and R12 ask of a member. */
export interface StepInFlight extends Pick<MemberCore, 'promised' | 'version'> {
  readonly ring:
    | (Pick<MemberGeneration, 'generation' | 'stage'> & {
        readonly flight: Pick<Flight, 'step' | 'stage' | 'todo' | 'held'> | undefined
      })
    | undefined
}

export interface StepId {
  readonly generation: number
  readonly step: number
}

function computing({ ring, promised }: StepInFlight, { generation, step }: StepId) {
  const isRunning = ring?.generation === generation && promised === generation && ring.stage === 'running'
  const flight = isRunning ? ring.flight : undefined
  return flight?.step === step && flight.stage === 'computing' ? flight : undefined
}

/**
 * The next blocks to compute, `max` of them: `begin` them. `wait`: none is left, but others may still hand over some
 * of theirs. `complete`: seal the assignment and contribute it. `over`: the generation or the step ended.
 */
export function nextBlocks(
  core: StepInFlight,
  at: StepId,
  max: number,
): readonly BlockId[] | 'wait' | 'complete' | 'over' {
  const flight = computing(core, at)
  if (flight === undefined) return 'over'
  if (flight.todo.length > 0) return flight.todo.slice(0, max)
  return flight.held.size > 0 ? 'wait' : 'complete'
}

/** From now on these blocks stay in the assignment; none: it waits for more. */
export function onBegin(flight: Flight, blocks: readonly BlockId[], blockMs: number): void {
  flight.blockMs = blockMs
  flight.begun.push(...blocks)
  flight.todo = flight.todo.filter((block) => !blocks.includes(block))
}

/** From now on nothing joins or leaves the assignment; a given sum that is here goes with it (A1). */
export function onSeal(ring: MemberGeneration, flight: Flight, blockMs: number): void {
  flight.blockMs = blockMs
  if (flight.sealed || flight.todo.length > 0 || flight.held.size > 0) return
  flight.sealed = true
  flight.given = givenNow(ring)
}

/**
 * Whether a piece of this member's gradient may enter the reduce before the rest of it is computed (R9). The premise
 * held when the step began: START of the promised generation, and the version before it held whole. It still does while
 * that step is in flight: the version changes at its end only, and a ballot ends the flight (R3).
 */
export function mayContributeEarly(core: StepInFlight, at: StepId): boolean {
  return computing(core, at) !== undefined && core.version?.v === at.step - 1
}

/** Others could take blocks of this assignment: not when all are begun, nor while a round about it is open. */
export function askForHelp(
  { fence, generation, flight }: MemberGeneration,
  step: number,
  blockMs: number,
): ToCoordinator | undefined {
  if (flight?.step !== step || flight.sealed || flight.held.size > 0 || flight.todo.length === 0) return undefined
  flight.blockMs = blockMs
  return { type: 'behind', fence, generation, step }
}

/** Who holds back can still get blocks; who has sealed its assignment, or is at another step, goes on. */
export function onHold(
  ring: MemberGeneration,
  { fence, generation, step, round }: MessageTo<'rebalance'>,
): ToCoordinator | undefined {
  const { flight } = ring
  const current = flight?.step === step ? flight : undefined
  if (current?.over.has(round)) return undefined
  const open = current !== undefined && !current.sealed
  if (open) current.held.add(round)
  return {
    type: 'rebalance-progress',
    fence,
    generation,
    step,
    round,
    open,
    left: open ? current.todo.length : 0,
    blockMs: current?.blockMs ?? 0,
  }
}

/** R12: from the end of the assignment, and never what is begun. */
export function onRelease(
  ring: MemberGeneration,
  { fence, generation, step, round, count }: MessageTo<'rebalance-release'>,
): ToCoordinator {
  const { flight } = ring
  const open = flight?.step === step && !flight.sealed && !flight.over.has(round) ? flight : undefined
  const blocks = open?.released.get(round) ?? open?.todo.slice(Math.max(0, open.todo.length - count)) ?? []
  open?.released.set(round, blocks)
  if (open !== undefined) open.todo = open.todo.filter((block) => !blocks.includes(block))
  return { type: 'rebalance-released', fence, generation, step, round, blocks: [...blocks] }
}

/** True when this member may go on: it has more to do, or nothing more to wait for. */
export function onMoved(ring: MemberGeneration, { step, round, moves }: MessageTo<'rebalance-done'>): boolean {
  const { flight } = ring
  const existing = ring.moves.get(step) ?? []
  if (ring.plan.has(step) && existing.every((entry) => entry.round !== round))
    ring.moves.set(step, [...existing, { round, moves }])
  if (flight?.step !== step || flight.over.has(round)) return false
  flight.over.add(round)
  flight.held.delete(round)
  if (!flight.sealed) for (const { to, blocks } of moves) if (to === ring.rank) flight.todo.push(...blocks)
  return true
}

/**
 * R12: the author of a manifest that no honest member sends; none when each planned block is in exactly one manifest.
 * Who is to blame follows from the moves that were told; news of a move may be late, but then the blocks are all there.
 */
export function wrongAssignment(
  ring: MemberGeneration,
  step: number,
  manifests: readonly Manifest[],
): MemberId | undefined {
  const planned = ring.plan.get(step)
  const found = ownBlocks(ring, manifests)
  if (planned === undefined) return ring.members[0]
  if (manifests.length === ring.members.length && isPartition(planned.blocks, found)) return undefined
  const earlierMoves = (ring.moves.get(step) ?? []).toSorted((a, b) => a.round - b.round).flatMap(({ moves }) => moves)
  const expected = assignmentsAfter(assignmentsOfStep(planned, planned.weights), earlierMoves)
  return ring.members.find((_, i) => !sameBlocks(found[i] ?? [], expected[i] ?? [])) ?? ring.members[0]
}

function sameBlocks(a: readonly BlockId[], b: readonly BlockId[]): boolean {
  return a.length === b.length && b.every((block) => a.includes(block))
}
