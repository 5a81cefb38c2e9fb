// In how many pieces a member computes its assignment, and when it is so far behind the plan that others should have
// some of it. Times are ms.
import type { CancelTimer, Clock } from '@starling-grid/protocol'
import type { Batches } from '../data/batch.ts'
import type { StepId } from '../member/assignment.ts'
import type { MemberCore, MemberInput } from '../member/member-state.ts'

/** ms between looks at an assignment that takes its time */
const LOOK_MS = 100
/** ms between two calls for help: one round of moves is over by then */
const CALL_MS = 500
/** ms of a piece at least: three messages to the coordinator and back take as long */
const LEAST_PIECE_MS = 200
/**
 * ms of a piece for each MB of gradient. Reading it back and adding it up takes 1 ms a MB, so pieces cost 3 % at most
 */
const PIECE_MS_PER_MB = 32
const MB = 1e6
/** Shares below this many pieces are computed in one: nothing of them could change members in time. */
const LEAST_PIECES = 2
/** Times the planned time of a step: assignments are whole blocks and speeds are averages, so less is no news. */
const BEHIND = 1.5
/** and this much more: three messages each way cost as much on a bad line */
const SLACK_MS = 300

/** Blocks to begin at once. */
export function pieceOf({
  blocks,
  blockMs,
  gradientBytes,
  atOnce = 1,
}: {
  readonly blocks: number
  readonly blockMs: number
  readonly gradientBytes: number
  /** blocks that are computed side by side */
  readonly atOnce?: number | undefined
}): number {
  const pieceMs = Math.max(LEAST_PIECE_MS, (PIECE_MS_PER_MB * gradientBytes) / MB)
  if (blocks * blockMs < LEAST_PIECES * pieceMs) return Number.POSITIVE_INFINITY
  return Math.max(atOnce, Math.floor(pieceMs / blockMs))
}

/**
 * What the plan expects every member to need for its assignment of the step: assignments are in proportion to samples
 * per second.
 */
export function plannedMs(samples: number, weights: readonly number[]): number {
  return (
    (1000 * samples) /
    Math.max(
      weights.reduce((sum, weight) => sum + weight, 0),
      1e-3,
    )
  )
}

export interface AssignmentState {
  /** since the assignment was begun, and since its present piece was */
  readonly elapsedMs: number
  readonly pieceMs: number
  readonly pieceBlocks: number
  /** blocks not begun */
  readonly left: number
  /** of the pieces before; 0: this is the first */
  readonly blockMs: number
  readonly plannedMs: number
}

/** ms that a block takes, as far as is known: the piece under way may show that it is more than before. */
export function blockMsNow({ pieceMs, pieceBlocks, blockMs }: AssignmentState): number {
  return Math.max(blockMs, pieceBlocks > 0 ? pieceMs / pieceBlocks : 0)
}

/**
 * Even if every block from here on takes no longer than the slowest so far, the assignment is done much later than
 * planned.
 */
export function isBehind(state: AssignmentState): boolean {
  const perBlock = blockMsNow(state)
  const rest = Math.max(0, state.pieceBlocks * perBlock - state.pieceMs) + state.left * perBlock
  return state.left > 0 && state.elapsedMs + rest > BEHIND * state.plannedMs + SLACK_MS
}

export interface AssignmentClockParts {
  readonly clock: Clock
  readonly core: Readonly<MemberCore>
  readonly batches: Pick<Batches, 'blockSamples'>
  tell(input: MemberInput): void
}

/** Looks at the clock while an assignment is computed, and says `behind` when it is. */
export class AssignmentClock {
  readonly #at: StepId
  readonly #parts: AssignmentClockParts
  readonly #beganAt: number
  readonly #stopLooking: CancelTimer
  readonly #plannedMs: number
  #calledAt = Number.NEGATIVE_INFINITY
  #pieceAt = 0
  #pieceBlocks = 0
  #blocks = 0
  #ms = 0

  constructor(at: StepId, parts: AssignmentClockParts) {
    const planned = parts.core.ring?.plan.get(at.step)
    this.#at = at
    this.#parts = parts
    this.#plannedMs = plannedMs((planned?.blocks.length ?? 0) * parts.batches.blockSamples, planned?.weights ?? [])
    this.#beganAt = parts.clock.now()
    this.#stopLooking = parts.clock.every(LOOK_MS, () => this.#look())
  }

  get left(): number {
    return this.#parts.core.ring?.flight?.todo.length ?? 0
  }

  /** of the pieces that are done */
  get blockMs(): number {
    return this.#blocks === 0 ? 0 : this.#ms / this.#blocks
  }

  begin(blocks: number): void {
    this.#pieceAt = this.#parts.clock.now()
    this.#pieceBlocks = blocks
  }

  /** ms for each block of the piece */
  end(): number {
    const ms = this.#parts.clock.now() - this.#pieceAt
    const perBlock = ms / Math.max(1, this.#pieceBlocks)
    this.#ms += ms
    this.#blocks += this.#pieceBlocks
    this.#pieceBlocks = 0
    this.#look()
    return perBlock
  }

  stop(): void {
    this.#stopLooking()
  }

  #look(): void {
    const now = this.#parts.clock.now()
    const state: AssignmentState = {
      elapsedMs: now - this.#beganAt,
      pieceMs: this.#pieceBlocks > 0 ? now - this.#pieceAt : 0,
      pieceBlocks: this.#pieceBlocks,
      left: this.left,
      blockMs: this.blockMs,
      plannedMs: this.#plannedMs,
    }
    if (now - this.#calledAt < CALL_MS || !isBehind(state)) return
    this.#calledAt = now
    this.#parts.tell({ type: 'behind', ...this.#at, blockMs: blockMsNow(state) })
  }
}
