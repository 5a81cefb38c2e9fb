import { type AsyncPolicy, DEFAULT_ASYNC, type RunConfig, type Timing } from '@starling-grid/coordinator/run'
// What one seed stands for: how many members, which network, which mode, how many faults of which kind.
import { genesis, jobId } from '@starling-grid/protocol'
import { Dice } from '../world/dice.ts'

export type Network = 'fifo' | 'shuffled'

export interface SimulationOptions {
  readonly network?: Network
  readonly mode?: RunConfig['mode']
  readonly heavy?: boolean
  /** only long epochs of slow steps, with a member that cannot be in the ring (A1) */
  readonly offRing?: boolean
  readonly mutant?: ShellMutant
}

/** What a shell around the reducers can do wrong; each must be noticed. */
export const SHELL_MUTANTS = {
  'reads-before-fence': 'a coordinator raises its fence before it reads the journal (R2)',
  'keeps-no-proof':
    'a state that is kept for the next visit is kept with the records since the last acknowledged version (R4)',
  'keeps-damaged-checkpoints': 'of a checkpoint that cannot be read the older ones serve in its place',
  'forgets-in-snapshots': 'a snapshot of the journal holds all that the rows before it made',
  'parks-without-checkpoint': 'a run that pauses for another job has a checkpoint, or its members keep what they hold',
} as const
export type ShellMutant = keyof typeof SHELL_MUTANTS

/** What a member that is connected can fail to do for the whole run; the others must finish without it. */
export const DEFECTS = ['deaf', 'no-uploads', 'no-downloads', 'no-validation', 'no-ring-steps'] as const
export type Defect = (typeof DEFECTS)[number]

export interface Scenario {
  readonly seed: number
  readonly network: Network
  readonly config: RunConfig
  readonly seats: number
  readonly faults: number
  /** ms that computing an assignment takes at most: short or long beside the times of TIMING */
  readonly computeMs: number
  /** ms that opening links takes at most */
  readonly linksMs: number
  /** ms that a question for a state, and its answer, take at most, each */
  readonly transferMs: number
  /** of the events: how many are faults, as long as there are some left */
  readonly faultRate: number
  /** frames from the first to the second seat never arrive (R17) */
  readonly brokenLink: readonly [number, number] | undefined
  /** of the member that takes the first seat */
  readonly defect: Defect | undefined
  /** ms that an append to the journal takes at most; 0: it is durable at once */
  readonly diskMs: number
  /** ms between raising the fence and the first decision of a coordinator, at most: it reads its journal in between */
  readonly gapMs: number
  /** ms that an upload of a whole state takes at most; undefined: as long as a message */
  readonly uploadMs: number | undefined
  /** of the answers over HTTP: how many are lost although the request arrived */
  readonly lostAnswers: number
  /** members keep their state for the next visit, and bring it along (R4, R6) */
  readonly warm: boolean
  readonly mutant: ShellMutant | undefined
}

/** Nothing goes wrong by itself: for plays, which say what does. */
export const CALM: Partial<Scenario> = {
  faults: 0,
  faultRate: 0,
  brokenLink: undefined,
  defect: undefined,
  diskMs: 0,
  gapMs: 0,
  uploadMs: undefined,
  lostAnswers: 0,
  warm: false,
}

/** Everything a few times shorter than in production, but in the same proportions. */
const TIMING: Timing = {
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
  parkMs: 10_000,
  leaseMinMs: 1500,
  leaseMaxMs: 15_000,
  quietMs: 3000,
  quietMaxMs: 24_000,
  abortsBeforeFallback: 2,
  ballotsPerMinute: 20,
  retryMs: 250,
  retryMaxMs: 8000,
  excludeMs: 10_000,
  linkMemoryMs: 60_000,
  stalenessBound: 3,
  threadAnswerMs: 5000,
}

/**
 * epochs, blocks in each, blocks in a batch; and of the runs, how many have more steps than a plan may be long (R14)
 */
const SHAPES = [
  [2, 6, 3],
  [2, 6, 3],
  [2, 9, 3],
  [3, 5, 2],
  [1, 12, 1],
  [2, 10, 5],
] as const
const LONG_RUN = [1, 120, 1] as const
const LONG_RUNS = 0.02
/** when pushes become a version, and which members wait */
const POLICIES: readonly AsyncPolicy[] = [
  DEFAULT_ASYNC,
  { ...DEFAULT_ASYNC, maxStaleness: 1, whenStale: 'wait' },
  { ...DEFAULT_ASYNC, update: 'proportion' },
  { ...DEFAULT_ASYNC, update: 'all', maxStaleness: 0, whenStale: 'wait' },
]
/**
 * long epochs of slow steps with a member that the ring leaves out: it has blocks to compute as an off-ring member (A1)
 */
const OFF_RING_RUN = [1, 60, 2] as const
const OFF_RING_RUNS = 0.03
const OFF_RING_TIMING: Partial<Timing> = { excludeMs: 120_000, stalenessBound: 8 }
const SLOW_MS = 4000
/** ms that an assignment of a long run takes: a whole plan is over before a coordinator is back */
const QUICK_MS = 20

/** ms of a slow upload, below TIMING.uploadMs */
const SLOW_UPLOAD_MS = 4000

/** of the runs: how many exchange gradients from each member to each instead of around the ring */
const DIRECT_RUNS = 0.3

/** batches in a local round; `auto` has many, so that it changes to rounds and back */
const ROUND_STEPS = { ring: 1, async: 1, local: 2, auto: 8 } as const

export function scenarioOf(seed: number, options: SimulationOptions): Scenario {
  const dice = new Dice(Math.imul(seed, 0x9e3779b1) ^ 0x5ca1ab1e)
  const network = options.network ?? (dice.chance(0.5) ? 'fifo' : 'shuffled')
  const heavy = options.heavy ?? dice.chance(0.2)
  const mode =
    options.offRing === true
      ? 'ring'
      : (options.mode ?? dice.pick(['ring', 'ring', 'auto', 'auto', 'async', 'local'] as const) ?? 'ring')
  const seats = dice.between(2, 4)
  const [fewest, most] = heavy ? [15, 29] : [2, 9]
  const faults = options.offRing === true ? dice.between(1, 4) : dice.between(fewest, most)
  const faultRate = dice.pick([0.01, 0.03, 0.06]) ?? 0
  const brokenLink = dice.chance(0.06) ? ([0, 1] as const) : undefined
  const drawn = brokenLink === undefined && dice.chance(0.15) ? dice.pick(DEFECTS) : undefined
  const config = configOf(dice, {
    mode,
    offRing: options.offRing === true || (mode === 'ring' && dice.chance(OFF_RING_RUNS)),
  })
  const withOffRing = config.blocks === OFF_RING_RUN[1]
  const defect = withOffRing ? 'no-ring-steps' : drawn
  const computeMs = computeMsOf(config.blocks, dice)
  const transferMs = dice.pick([1000, 1000, 6000]) ?? 1000
  const linksMs = dice.pick([200, 3000]) ?? 200
  const async = dice.pick(POLICIES) ?? DEFAULT_ASYNC
  const asked = dice.chance(DIRECT_RUNS) ? 'direct' : 'ring'
  return {
    ...worldOf(seed),
    mutant: options.mutant,
    seed,
    computeMs,
    linksMs,
    transferMs,
    network,
    config: { ...config, async, exchange: { asked, bytes: 0 }, versionBytes: 0 },
    seats,
    faults,
    faultRate,
    brokenLink,
    defect,
  }
}

/** What is around the processes. Drawn apart, so that it changes nothing else of a seed. */
function worldOf(seed: number): Pick<Scenario, 'diskMs' | 'gapMs' | 'uploadMs' | 'lostAnswers' | 'warm'> {
  const dice = new Dice(Math.imul(seed, 0x85ebca6b) ^ 0xd15c)
  return {
    diskMs: dice.pick([0, 0, 0, 20, 200]) ?? 0,
    gapMs: dice.pick([0, 20, 300]) ?? 0,
    uploadMs: dice.pick([undefined, undefined, undefined, SLOW_UPLOAD_MS]),
    lostAnswers: dice.pick([0, 0, 0.1]) ?? 0,
    warm: dice.chance(0.5),
  }
}

function configOf(
  dice: Dice,
  { mode, offRing }: { readonly mode: RunConfig['mode']; readonly offRing: boolean },
): Omit<RunConfig, 'async' | 'exchange' | 'versionBytes'> {
  const job = jobId('simulated')
  const [epochs, blocks, batchBlocks] = offRing ? OFF_RING_RUN : drawShape(dice)
  return {
    job,
    genesis: genesis(job, 'counts', 0),
    seed: dice.below(1000),
    blocks,
    epochs,
    batchBlocks,
    blockSamples: 1,
    mode,
    validationBlocks: dice.pick([0, 0, 3]) ?? 0,
    maxSteps: undefined,
    validateEvery: 1,
    roundSteps: ROUND_STEPS[mode],
    minVolunteers: dice.between(1, 2),
    timing: {
      ...TIMING,
      checkpointSteps: dice.pick([1, 2, 3, 50]) ?? 3,
      abortsBeforeFallback: dice.between(2, 3),
      ...(offRing ? OFF_RING_TIMING : {}),
    },
  }
}

function drawShape(dice: Dice): readonly [epochs: number, blocks: number, batchBlocks: number] {
  return dice.chance(LONG_RUNS) ? LONG_RUN : (dice.pick(SHAPES) ?? [2, 6, 3])
}

function computeMsOf(blocks: number, dice: Dice): number {
  if (blocks === LONG_RUN[1]) return QUICK_MS
  return blocks === OFF_RING_RUN[1] ? SLOW_MS : (dice.pick([500, 500, 4000]) ?? 500)
}
