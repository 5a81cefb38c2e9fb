// `plan FILE --with TEXT`: how long a job would take with the volunteers of TEXT, and what each home would send and
// receive. It also proposes settings that would be faster. Nothing is trained, and no coordinator is asked.
import { dirname, resolve } from 'node:path'
import { type JobFile, locatedDataset, readJobFile } from '@starling-grid/client/job-file'
import { dryRun } from '@starling-grid/coordinator'
import { type JobSpec, MistakesError } from '@starling-grid/protocol'
import { Command } from 'commander'
import { wholeNumber } from '../arguments.ts'
import { demoJob } from '../demo-job.ts'
import { readChurn, readCrowd } from '../plan/crowd.ts'
import { type JobPlan, planJob } from '../plan/plan.ts'
import { planReport } from '../plan/report.ts'

interface PlanCommandOptions {
  readonly with: string
  readonly churn?: string
  readonly steps?: number
  readonly data?: string
  readonly dataDir: string
  readonly seed: number
  readonly json?: true
}

/** In place of a file: the job that `starling demo` trains. */
const DEMO = 'demo'
const DEMO_EPOCHS = 8

export async function plan(argv: string[]): Promise<number> {
  const { file, options } = parse(argv)
  const crowd = readCrowd(options.with)
  const churnPerMinute = options.churn === undefined ? 0 : readChurn(options.churn)
  const { job: spec, located } = await readJob(file, options)
  const job = await dryRun(spec, { dataDir: options.dataDir, dataRoot: '/' }).catch((error: unknown) => {
    throw error instanceof MistakesError ? located(error) : error
  })
  const steps = options.steps === undefined ? {} : { steps: options.steps }
  const planned = planJob({ job, crowd, churnPerMinute, seed: options.seed, ...steps })
  console.log(planReport(planned, { spec, crowd, churnPerMinute, ...steps }))
  if (options.json) console.log(JSON.stringify(asJson(planned)))
  return 0
}

/** Names as scripts rely on them; the best first, the job's own settings beside it. */
function asJson({ best, own, tried, innerSteps, ...rest }: JobPlan): object {
  return {
    secondsToTarget: best.seconds,
    bytesPerMember: { up: best.bytesUp, down: best.bytesDown },
    groups: 1,
    members: best.members,
    innerSteps,
    encoding: best.encoding,
    ...rest,
    best,
    own,
    tried,
  }
}

function parse(argv: string[]): { readonly file: string; readonly options: PlanCommandOptions } {
  const program = new Command('starling plan')
    .description(
      'Forecasts a training before anyone lends a machine: time, bytes of each home, batch, encoding and exchange. ' +
        'Asks the model of docs/SCALING.md.',
    )
    .argument('<job>', `YAML or JSON file with a job, or ${DEMO}: what \`starling demo\` trains`)
    .requiredOption(
      '--with <machines>',
      'who takes part: "30 laptops, 5 gaming PCs, home lines", ' +
        '"4 desktops without f16 at 200 samples/s, 20/60 Mbit/s 15 ms"',
    )
    .option('--churn <part>', 'volunteers that leave in a minute, each followed by another: 20%/min')
    .option('--steps <n>', "steps to plan for, in place of the job's end", wholeNumber(1))
    .option('--data <path>', 'the text file or MNIST folder, in place of the one that the job names')
    .option('--data-dir <folder>', "a coordinator's data folder, for a dataset that was imported", 'starling-data')
    .option('--seed <n>', 'of what happens by chance in the model', wholeNumber(0), 1)
    .option('--json', 'print one JSON value on the last line of stdout')
    .exitOverride()
    .parse(argv, { from: 'user' })
  return { file: program.args[0] ?? '', options: program.opts<PlanCommandOptions>() }
}

/** Paths in a job file are relative to it. */
async function readJob(file: string, { data }: PlanCommandOptions): Promise<JobFile> {
  if (file === DEMO) return { job: demo(data), located: (error) => error }
  const { job, located } = await readJobFile(file)
  const dataset = locatedDataset(job.dataset, (path) => resolve(data ?? resolve(dirname(file), path)))
  return { job: { ...job, dataset }, located }
}

function demo(data: string | undefined): JobSpec {
  return demoJob({ stop: { epochs: DEMO_EPOCHS }, seed: 1, ...(data === undefined ? {} : { data: resolve(data) }) })
}
