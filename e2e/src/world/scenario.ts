// What one seed is: the job, its members, how slow everything is, and how much goes wrong.
import { DEFAULT_TIMING, type Timing } from '@starling-grid/coordinator/run'
import type { JobSpec } from '@starling-grid/protocol'
import { type Defect, DEFECTS } from './defects.ts'
import { Dice } from './dice.ts'
import type { JobShape } from './job.ts'
import { type MemberOptions, type MemberScenario, memberScenario, memberTerms } from './members.ts'
import type { World } from './world.ts'

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

/** ms, below uploadMs of the timing */
const SLOW_UPLOAD_MS = 4000

/** epochs, blocks in each, blocks in a batch */
const SHAPES = [
  [2, 6, 3],
  [2, 9, 3],
  [3, 5, 2],
  [2, 10, 5],
  [2, 16, 4],
] as const

/** when pushes become a version, and which members wait */
const POLICIES: readonly JobSpec['async'][] = [
  undefined,
  { maxStaleness: 1, whenStale: 'wait' },
  { update: 'proportion' },
  { update: 'all', whenStale: 'wait' },
]

/** of one seed in eight: training rests at what is kept */
const KEPT = { best: 1, every: 3 } as const

/** one seed in eight has one */
const SOME_DEFECTS = [...DEFECTS, ...new Array<undefined>(7 * DEFECTS.length)]

/**
 * A long epoch of slow steps, with a member that the ring leaves out for long: it has blocks to compute off the ring
 * (A1).
 */
const OFF_RING_RUN = { shape: [1, 60, 2], computeMs: 4000 } as const
const OFF_RING_TIMING: Partial<Timing> = { excludeMs: 120_000, stalenessBound: 8 }

/** Of the seeds some have more steps than a plan may be long (R14). */
const LONG_RUNS = 0.02
const LONG_RUN = { shape: [1, 120, 1], computeMs: 20 } as const

/** Of the seeds, one in sixteen each: data is appended, and the batch follows the ring. Drawn apart. */
const APART = 16
const APPENDED_AT = 7
const WEAK_AT = 3
/** blocks that are appended, at most, and ms after which, at most */
const MOST_APPENDED = 6
const APPEND_MS = 12_000
/** steps in which the rate rises */
const WARMUPS = [0, 2, 5] as const

interface Apart extends Pick<GridScenario, 'appendAtMs'> {
  readonly shape: Pick<JobShape, 'weakScaling' | 'appended'>
}

/** What is drawn apart changes nothing else of a seed. Long runs have no room for it. */
function drawnApart(seed: number, mode: JobSpec['mode'], { appended, weak }: GridOptions): Apart {
  const dice = new Dice(Math.imul(seed, 0x165667b1) ^ 0x0a11)
  const [blocks, atMs, warmup] = [dice.between(1, MOST_APPENDED), dice.between(0, APPEND_MS), dice.pick(WARMUPS) ?? 0]
  const isAppended = appended ?? seed % APART === APPENDED_AT
  const isWeak = mode === 'ring' && (weak ?? seed % APART === WEAK_AT)
  return {
    appendAtMs: isAppended ? atMs : undefined,
    shape: {
      ...(isAppended ? { appended: blocks } : {}),
      ...(isWeak ? { weakScaling: { warmup } } : {}),
    },
  }
}

const NOTHING_APART: Apart = { appendAtMs: undefined, shape: {} }

/** A play instead of chance: another scenario for the seed, and what happens in it. */
export interface Play {
  scenario(drawn: GridScenario): GridScenario
  direct(world: World): void
}

export interface GridOptions {
  readonly play?: Play
  readonly mode?: JobSpec['mode']
  readonly faults?: number
  readonly members?: MemberOptions
  /** more steps than a plan may be long */
  readonly long?: boolean
  readonly defect?: Defect
  /** data is appended to the dataset while the job trains */
  readonly appended?: boolean
  /** the batch and the rate follow the ring */
  readonly weak?: boolean
  /** of three members, how many say the same false states */
  readonly accomplices?: number
}

export interface GridScenario {
  readonly seed: number
  readonly shape: JobShape
  readonly timing: Timing
  readonly seats: number
  readonly members: MemberScenario
  readonly accomplices: number
  /** ms that a share takes at most */
  readonly computeMs: number
  /** ms that an append to the journal takes at most */
  readonly diskMs: number
  /** of the answers over HTTP, how many are lost although the request arrived */
  readonly lostAnswers: number
  /** ms that an upload takes at most, and the answer to any other request */
  readonly uploadMs: number
  readonly transferMs: number
  /** ms between raising the fence and the first decision of a coordinator, at most: it reads its journal in between */
  readonly gapMs: number
  /** members keep their state for the next visit, and bring it along (R4, R6) */
  readonly warm: boolean
  /** of the member at the first seat */
  readonly defect: Defect | undefined
  /** ms: when an owner appends to the dataset of the job; undefined: never */
  readonly appendAtMs: number | undefined
  readonly faults: number
  /** ms between faults, about */
  readonly faultEveryMs: number
}

/** Nothing goes wrong by itself: for plays, which say what does. */
export function calm(drawn: GridScenario): GridScenario {
  return {
    ...drawn,
    members: {
      ...drawn.members,
      unlinked: [],
      linkless: undefined,
      brokenLink: undefined,
      slowLineMs: undefined,
      repeated: 0,
    },
    faults: 0,
    defect: undefined,
    diskMs: 0,
    gapMs: 0,
    uploadMs: 60,
    transferMs: 60,
    lostAnswers: 0,
    warm: false,
  }
}

export function gridScenario(seed: number, dice: Dice, options: GridOptions): GridScenario {
  const shape = dice.pick(SHAPES) ?? SHAPES[0]
  const drawn = options.mode ?? dice.pick(['ring', 'ring', 'auto', 'async', 'local'])
  const seats = dice.between(2, 4)
  const members = memberScenario(seed, seats, options.members ?? {})
  const isOffRing = members.linkless !== undefined
  const mode = isOffRing ? 'ring' : drawn
  const special = specialRun(dice, isOffRing, options)
  const [epochs, blocks, batchBlocks] = special?.shape ?? shape
  const apart = special === undefined ? drawnApart(seed, mode, options) : NOTHING_APART
  const scenario = {
    seed,
    members,
    seats,
    shape: {
      seed: dice.below(1000),
      epochs,
      blocks,
      batchBlocks,
      mode,
      volunteers: { min: dice.between(1, 2) },
      ...(seed % 8 === 5 ? { keep: KEPT } : {}),
      exchange: dice.pick(['ring', 'ring', 'direct', 'auto']),
      ...memberTerms(members, mode, dice.pick(POLICIES)),
      ...apart.shape,
    },
    timing: {
      ...TIMING,
      checkpointSteps: dice.pick([1, 2, 3, 50]),
      versionSeeds: 1,
      easyBytesPerMs: 0,
      ...(isOffRing ? OFF_RING_TIMING : {}),
    },
    computeMs: special?.computeMs ?? dice.pick([50, 500, 2000]),
    diskMs: dice.pick([0, 20, 200]),
    lostAnswers: dice.pick([0, 0, 0.1]),
    uploadMs: dice.pick([60, 60, 60, SLOW_UPLOAD_MS]),
    transferMs: dice.pick([60, 60, 3000]),
    gapMs: dice.pick([0, 20, 300]),
    warm: dice.chance(0.5),
    defect: options.defect ?? drawnDefect(dice, members),
    faults: options.faults ?? faultsOf(dice),
    faultEveryMs: dice.pick([1000, 3000]),
    accomplices: 0,
    appendAtMs: apart.appendAtMs,
  }
  return options.accomplices === undefined ? scenario : ofThree(scenario, options.accomplices)
}

function specialRun(dice: Dice, isOffRing: boolean, { long }: GridOptions) {
  if (isOffRing) return OFF_RING_RUN
  return (long ?? dice.chance(LONG_RUNS)) ? LONG_RUN : undefined
}

/** Two members of two that lack something would be too many. */
function drawnDefect(dice: Dice, { linkless, brokenLink }: MemberScenario): Defect | undefined {
  return linkless === undefined && brokenLink === undefined ? dice.pick(SOME_DEFECTS) : undefined
}

/** One ring of three, without a defect of its own. */
function ofThree(scenario: GridScenario, accomplices: number): GridScenario {
  return { ...scenario, seats: 3, accomplices, defect: undefined, shape: { ...scenario.shape, volunteers: { min: 3 } } }
}

/** One seed in ten has many. */
function faultsOf(dice: Dice): number {
  return dice.chance(0.1) ? dice.between(12, 20) : dice.between(1, 7)
}
