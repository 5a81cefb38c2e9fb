// In how many pieces a member computes its assignment, and when it is so far behind the plan that others should have
// some of it. Pure numbers; times are ms.

/** ms of a piece at least: three messages to the coordinator and back take as long */
const LEAST_PIECE_MS = 200
/**
 * ms of a piece for each MB of gradient: reading it back and adding it up takes 1 ms a MB, so pieces cost 3 % at most
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
}: {
  readonly blocks: number
  readonly blockMs: number
  readonly gradientBytes: number
}): number {
  const pieceMs = Math.max(LEAST_PIECE_MS, (PIECE_MS_PER_MB * gradientBytes) / MB)
  if (blocks * blockMs < LEAST_PIECES * pieceMs) return Number.POSITIVE_INFINITY
  return Math.max(1, Math.floor(pieceMs / blockMs))
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
