// What `starling plan` predicts beside what a real grid takes. The grid is a coordinator and volunteers in this process
// over WebRTC, on lines of 20 Mbit/s and 15 ms. Their machines take a fixed time for a sample, so that two cores carry
// several. How fast one of them is in fact is measured first, alone, and that speed is given to the plan.
import { planJob, readCrowd } from '@starling-grid/cli/plan'
import { dryRun } from '@starling-grid/coordinator'
import { mlp } from '@starling-grid/model'
import type { GradientEncoding, JobSpec } from '@starling-grid/protocol'
import { type BenchRow, compared } from './row.ts'
import { type MemberSetting, type TrainedGrid, trainTogether } from './small-grid.ts'
import { isWanted, type SuiteOptions } from './suite.ts'

interface PlannedGrid {
  readonly members: number
  readonly encoding: GradientEncoding
}

const GRIDS: Readonly<Record<string, PlannedGrid>> = {
  'plan 4 volunteers': { members: 4, encoding: 'f32' },
  'plan 6 volunteers, int8': { members: 6, encoding: 'int8' },
  'plan 12 volunteers': { members: 12, encoding: 'f32' },
}
/** ms of a sample: many times what the reference executor needs for it */
const SAMPLE_MS = 8
const LINE = { bytesPerMs: 2500, latencyMs: 15 }
/** The same line as a plan reads it: it is shaped where bytes leave, so both ways are as fast. */
const LINE_TEXT = '20/20 Mbit/s 15 ms'
/** Over a minute of every grid, so that it settles on a way for its gradients as longer trainings do. */
const STEPS = 200
const ALONE_STEPS = 12
const SEED = 5

export async function planSuite(options: SuiteOptions): Promise<BenchRow[]> {
  const rows: BenchRow[] = []
  for (const [name, grid] of Object.entries(GRIDS).filter(([row]) => isWanted(options, row)))
    rows.push(...(await rowsOf(name, grid, options)))
  return rows
}

/** Time and bytes: ours is predicted, the peer is real. */
async function rowsOf(name: string, grid: PlannedGrid, { rounds, log }: SuiteOptions): Promise<BenchRow[]> {
  const figures: { readonly planned: Figures; readonly real: Figures }[] = []
  for (let round = 0; round < rounds; round++) {
    const alone = await trainTogether(jobOf({ members: 1, encoding: 'f32' }, ALONE_STEPS), [{ sampleMs: SAMPLE_MS }])
    const planned = await plannedFigures(grid, alone.samplesPerSecond)
    const members = Array.from({ length: grid.members }, (): MemberSetting => ({ sampleMs: SAMPLE_MS, line: LINE }))
    const real = realFigures(await trainTogether(jobOf(grid, STEPS), members), grid)
    figures.push({ planned, real })
    log(
      `${name}: one machine alone ${alone.samplesPerSecond.toFixed(0)} samples/s; predicted ${asText(planned)}, ` +
        `real ${asText(real)}: ${(planned.seconds / real.seconds).toFixed(3)}×`,
    )
  }
  const row = (what: keyof Figures, unit: string): BenchRow =>
    compared(
      { name: `${name}, ${what}`, adapter: 'reference, 20 Mbit/s and 15 ms', unit },
      figures.map(({ planned }) => planned[what]),
      { real: figures.map(({ real }) => real[what]) },
    )
  return [row('seconds', 's to the last step, predicted'), row('megabytes', 'MB sent by a member, predicted')]
}

interface Figures {
  /** from the first commit to the last */
  readonly seconds: number
  /** by a member to others, on the average of the real ones */
  readonly megabytes: number
}

async function plannedFigures({ members, encoding }: PlannedGrid, samplesPerSecond: number): Promise<Figures> {
  const spec = jobOf({ members, encoding }, STEPS)
  const job = await dryRun(spec, { dataDir: '.', dataRoot: '/' })
  const crowd = readCrowd(`${members} desktops at ${samplesPerSecond.toFixed(2)} samples/s, ${LINE_TEXT}`)
  const { own } = planJob({ job, crowd, churnPerMinute: 0, seed: SEED })
  return { seconds: own.secondsAfterFirst, megabytes: own.bytesUp / 1e6 }
}

function realFigures({ secondsAfterFirst, bytesBetweenMembers }: TrainedGrid, { members }: PlannedGrid): Figures {
  return { seconds: secondsAfterFirst, megabytes: bytesBetweenMembers / members / 1e6 }
}

/** 96 samples a step; 51 k parameters, 0.2 MB of gradient. Training starts when all are there. */
function jobOf({ members, encoding }: PlannedGrid, steps: number): JobSpec {
  return {
    name: 'plan against truth',
    owner: 'the benchmark',
    purpose: 'Compares a plan with a real training.',
    model: mlp({ input: [1, 28, 28], hidden: [64], classes: 10, inputScale: 1 / 255 }),
    dataset: { source: 'digits' },
    optimizer: { type: 'sgd', lr: 0.05 },
    blockSamples: 4,
    batchBlocks: 24,
    stop: { steps },
    evaluate: { everySteps: steps },
    audit: 0,
    volunteers: { min: members },
    seed: SEED,
    mode: 'ring',
    encoding,
  }
}

function asText({ seconds, megabytes }: Figures): string {
  return `${seconds.toFixed(1)} s and ${megabytes.toFixed(1)} MB`
}
