// What one seed is: the job, its members, how slow everything is, and how much goes wrong.
import { DEFAULT_TIMING, type Timing } from '@starling-grid/coordinator/run'
import type { JobSpec } from '@starling-grid/protocol'
import type { Dice } from './dice.ts'
import type { JobShape } from './job.ts'

/** Shorter than in production, in its proportions; silences of sockets and links are production's. */
const TIMING: Timing = {
  ...DEFAULT_TIMING,
  stateMs: 2000,
  rejoinMs: 5000,
  lostMs: 20_000,
  linkOpenMs: 3000,
  formMs: 8000,
  newcomerMs: 4000,
  contributeMs: 5000,
  stallMs: 15_000,
  admitMs: 800,
  checkpointSteps: 3,
  checkpointMs: 8000,
  uploadMs: 5000,
  leaseMinMs: 1500,
  leaseMaxMs: 15_000,
  quietMs: 3000,
  quietMaxMs: 24_000,
  excludeMs: 10_000,
}

/** epochs, blocks in each, blocks in a batch */
const SHAPES = [
  [2, 6, 3],
  [2, 9, 3],
  [3, 5, 2],
  [2, 10, 5],
  [2, 16, 4],
] as const

export interface GridOptions {
  readonly mode?: JobSpec['mode']
  readonly faults?: number
}

export interface GridScenario {
  readonly seed: number
  readonly shape: JobShape
  readonly timing: Timing
  readonly seats: number
  /** ms that a share takes at most */
  readonly computeMs: number
  /** ms that an append to the journal takes at most */
  readonly diskMs: number
  /** of the answers over HTTP, how many are lost although the request arrived */
  readonly lostAnswers: number
  readonly faults: number
  /** ms between faults, about */
  readonly faultEveryMs: number
}

export function gridScenario(seed: number, dice: Dice, options: GridOptions): GridScenario {
  const [epochs, blocks, batchBlocks] = dice.pick(SHAPES) ?? SHAPES[0]
  const mode = options.mode ?? dice.pick(['ring', 'ring', 'auto', 'async'] as const) ?? 'ring'
  return {
    seed,
    shape: {
      seed: dice.below(1000),
      epochs,
      blocks,
      batchBlocks,
      mode,
      minVolunteers: dice.between(1, 2),
      exchange: dice.pick(['ring', 'ring', 'direct'] as const) ?? 'ring',
    },
    timing: { ...TIMING, checkpointSteps: dice.pick([1, 2, 3, 50]) ?? 3 },
    seats: dice.between(2, 4),
    computeMs: dice.pick([50, 500, 2000]) ?? 500,
    diskMs: dice.pick([0, 20, 200]) ?? 0,
    lostAnswers: dice.pick([0, 0, 0.1]) ?? 0,
    faults: options.faults ?? dice.between(1, 6),
    faultEveryMs: dice.pick([1000, 3000]) ?? 1000,
  }
}
