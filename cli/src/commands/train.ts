// `train`: a job file, a coordinator with its pages and volunteers on this machine, a log of every step, and the model
// at the end. Its data folder stays: the same command again goes on where the last one ended, however it ended.
import { dirname, resolve } from 'node:path'
import { EXECUTOR_CHOICES, EXECUTOR_TEXT, type ExecutorWish } from '@starling-grid/client-node/executor-choice'
import { ensureWebPage } from '@starling-grid/client-web/build'
import { type JobFile, locatedDataset, locatedJob, readJobFile } from '@starling-grid/client/job-file'
import { DEFAULT_PORT, MistakesError, type RunView } from '@starling-grid/protocol'
import { Command, Option } from 'commander'
import { doorOptions, wholeNumber } from '../arguments.ts'
import type { Grid, GridDoors } from '../grid/grid.ts'
import type { Watch } from '../grid/watch.ts'
import {
  doorsIn,
  failEarly,
  keepModel,
  keepServing,
  nextSteps,
  startLocalGrid,
  stopOnSignal,
  threadsEach,
} from '../local-run.ts'
import { RunLog } from '../run-log.ts'
import { duration, ProgressLine } from '../terminal/progress-line.ts'
import { type TrainFolder, trainFolder, trainRoot } from '../train-folder.ts'

interface TrainCommandOptions extends GridDoors {
  readonly volunteers: number
  readonly executor: ExecutorWish
  readonly adapter?: string
  readonly data?: string
  readonly steps?: number
  readonly dataDir?: string
  readonly datasetsDir: string
  readonly port?: number
  readonly out: string
  readonly log?: string
  readonly once?: boolean
  readonly json?: boolean
}

/** The longest training that is watched from one command: 7 days. */
const LIMIT_MS = 7 * 24 * 60 * 60 * 1000

export async function train(argv: string[]): Promise<number> {
  const { file, options } = parse(argv)
  const { job, located } = await readJob(file, options)
  const locatedAgain = (error: unknown): never => {
    throw error instanceof MistakesError ? located(error) : error
  }
  const line = new ProgressLine()
  const folder = await trainFolder(file, job, options.dataDir)
  const webRoot = await ensureWebPage((text) => line.say(text))
  const grid = await startLocalGrid({
    ...doorsIn(options),
    port: options.port,
    webRoot,
    dataDir: folder.path,
    datasetsDir: resolve(options.datasetsDir),
  })
  const stopped = stopOnSignal()
  try {
    const [known] = await grid.jobs()
    // Where its coordinator answers this machine alone the dashboard needs no token, unless the job says so.
    const id = known ?? (await grid.submit({ public: grid.isPrivate, ...job }).catch(locatedAgain))
    line.say(about(file, folder, known !== undefined))
    await nextSteps(line, grid)
    const { executor, adapter } = options
    const threads = threadsEach(options.volunteers)
    for (let i = 0; i < options.volunteers; i++)
      grid.addVolunteer({ executor, threads, ...(adapter === undefined ? {} : { adapter }) })
    const log =
      options.log === undefined
        ? undefined
        : new RunLog(resolve(options.log), { job: job.name, volunteers: options.volunteers, executor, seed: job.seed })
    const finished = await Promise.race([
      followed(grid, log, line),
      stopped,
      ...grid.volunteers.map(async (child) => failEarly(child, await child.ended)),
    ])
    if (finished === undefined) return 0
    const model = await keepModel(grid, id, options.out)
    report(line, grid.watch, { model, reason: finished.reason })
    if (options.json === true)
      console.log(
        JSON.stringify({
          ...summarise(grid.watch, finished),
          model,
          dataDir: folder.path,
          resumed: known !== undefined,
        }),
      )
    if (options.once !== true) await keepServing(line, grid.url, stopped)
    return 0
  } finally {
    await grid.stop()
  }
}

/** What this call goes on with, or begins. */
function about(file: string, { path, older }: TrainFolder, resumes: boolean): string {
  if (resumes) return `The run of ${file} goes on: it is kept in ${path}`
  if (older.length === 0)
    return `A new run of ${file} begins; it is kept in ${path}, and the same command goes on with it`
  return `${file} or its options changed since the run in ${older.at(-1)}: a new run begins, kept in ${path}`
}

function summarise({ steps, validations }: Watch, run: RunView): object {
  return {
    job: run.job.id,
    reason: run.reason,
    best: run.best,
    steps: steps.length,
    samplesCommitted: run.samplesCommitted,
    samplesExpected: run.samplesExpected,
    firstLoss: steps[0]?.loss ?? null,
    lastLoss: steps.at(-1)?.loss ?? null,
    validationLoss: validations.at(-1)?.loss ?? null,
    validationAccuracy: validations.at(-1)?.accuracy ?? null,
  }
}

function parse(argv: string[]): { readonly file: string; readonly options: TrainCommandOptions } {
  const program = new Command('starling train')
    .description(
      'Trains the job of a file with a coordinator and volunteers on this machine. Called again, ' +
        'it goes on with the same run.',
    )
    .argument('<job>', 'YAML or JSON file with a job, such as examples/nanogpt-shakespeare-char.yaml')
    .option('--volunteers <n>', 'headless volunteers', wholeNumber(1), 1)
    .addOption(new Option('--executor <kind>', EXECUTOR_TEXT).choices(EXECUTOR_CHOICES).default('auto'))
    .option('--adapter <text>', "part of the wanted adapter's name")
    .option('--data <path>', 'the text file or MNIST folder, in place of the one that the job names')
    .option('--steps <n>', 'end after this many steps; schedules keep theirs', wholeNumber(1))
    .option('--data-dir <folder>', `where runs are kept, each in a folder of its own (${trainRoot()})`)
    .option('--datasets-dir <folder>', 'data folder of imported datasets and models', 'starling-data')
    .option(
      '--port <port>',
      `port of the coordinator (${DEFAULT_PORT}, or a free one when it is taken)`,
      wholeNumber(0),
    )
    .option('--once', 'end when the model is trained')
    .option('--json', 'print one JSON value on the last line of stdout')
    .option('--out <file>', 'where the trained model is written', 'starling-model/model.safetensors')
    .option('--log <file>', 'JSON lines of every step and validation')
    .exitOverride()
  for (const option of doorOptions()) program.addOption(option)
  program.parse(argv, { from: 'user' })
  return { file: program.args[0] ?? '', options: program.opts<TrainCommandOptions>() }
}

/** Paths in a job file are relative to it. */
async function readJob(file: string, { data, steps }: TrainCommandOptions): Promise<JobFile> {
  const { job: written, located } = await readJobFile(file)
  const job = locatedJob(written, (path) => resolve(dirname(file), path))
  const dataset = locatedDataset(job.dataset, (path) => resolve(data ?? path))
  return { job: { ...job, dataset, ...(steps === undefined ? {} : { stop: { ...job.stop, steps } }) }, located }
}

async function followed({ watch }: Grid, log: RunLog | undefined, line: ProgressLine): Promise<RunView> {
  watch.onChange(() => {
    log?.follow(watch)
    if (watch.run !== undefined) line.show(progressText(watch.run, watch))
  })
  const finished = await watch.waitFor(
    'the end of the training',
    ({ run }) => run?.phase === 'finished' && run,
    LIMIT_MS,
  )
  log?.follow(watch)
  return finished
}

function progressText(run: RunView, { steps, validations }: Watch): string {
  const [step, validation] = [steps.at(-1), validations.at(-1)]
  if (step === undefined) return run.reason
  const measured = validation === undefined ? [] : [`validation ${validation.loss.toFixed(4)} at step ${validation.v}`]
  return [
    `step ${step.v}`,
    `loss ${step.loss.toFixed(4)}`,
    ...measured,
    `${run.samplesPerSecond.toFixed(1)} samples/s`,
    ...(run.etaSeconds === null ? [] : [`${duration(run.etaSeconds)} left`]),
  ].join('  ')
}

function report(
  line: ProgressLine,
  { steps, validations }: Watch,
  { model, reason }: { readonly model: string; readonly reason: string },
): void {
  const [first, last, validation] = [steps[0], steps.at(-1), validations.at(-1)]
  line.say(
    `trained ${steps.length} steps in ${duration(((last?.at ?? 0) - (first?.at ?? 0)) / 1000)}; ` +
      `loss ${first?.loss.toFixed(4)} → ${last?.loss.toFixed(4)}, ` +
      `validation loss ${validation?.loss.toFixed(4) ?? 'not measured'}`,
  )
  line.say(reason)
  line.say(`model ${model}`)
}
