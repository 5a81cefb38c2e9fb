// `parity`: the same job, seed and global batch on 1, 2, 3 … members gives the same losses, and equal replicas. Replica
// groups of one inner step that wait for each other give those of one ring.
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { launchBrowser } from '@starling-grid/client-node'
import { ensureWebPage } from '@starling-grid/client-web/build'
import { lenet5 } from '@starling-grid/model'
import { type ExecutorKind, float32Values, readSafetensors } from '@starling-grid/protocol'
import { Command, Option } from 'commander'
import { wholeNumber, wholeNumbers } from '../arguments.ts'
import { demoJob } from '../demo-job.ts'
import { Grid } from '../grid/grid.ts'
import type { Watch } from '../grid/watch.ts'
import { ProgressLine } from '../terminal/progress-line.ts'
import { ensureText, textJob } from '../text-job.ts'
import { importLlama, tunedJob } from '../tuned-job.ts'

interface ParityOptions {
  readonly volunteers: number[]
  readonly groups?: number[]
  readonly steps: number
  readonly model: 'lenet5' | 'gpt' | 'lora'
  readonly tabs: number
  readonly executor: ExecutorKind
  readonly as?: 'gpu'
  readonly seed: number
  readonly json?: boolean
}

/** Members in one ring, or each as a group of its own. */
interface ParityGrid {
  readonly count: number
  readonly as: 'ring' | 'groups'
}

interface ParityRun {
  readonly losses: readonly number[]
  readonly parameters: ReadonlyMap<string, Float32Array>
  readonly identical: boolean
}

/**
 * Not Adam: its first steps go by the sign of each gradient, so that rounding of those near zero becomes a whole step.
 */
const OPTIMIZER = { type: 'sgd', lr: 0.05, momentum: 0.9 } as const
/** losses that differ by more than this do not come from the order of additions */
const MAX_LOSS_DIFFERENCE = 1e-5

export async function parity(argv: string[]): Promise<number> {
  const options = new Command('starling parity')
    .description(
      'Trains the same job with different numbers of volunteers and compares losses, parameters and replicas.',
    )
    .option('--volunteers <list>', 'numbers of volunteers', wholeNumbers, [1, 2, 4])
    .option('--groups <list>', 'numbers of replica groups, against one ring of the largest number', wholeNumbers)
    .option('--steps <n>', 'steps to train', wholeNumber(1), 100)
    .addOption(
      new Option('--model <name>', 'what to train; lora: adapters beside a llama of 20 M parameters, on a text')
        .choices(['lenet5', 'gpt', 'lora'])
        .default('lenet5'),
    )
    .option('--tabs <n>', 'of several volunteers, tabs of a headless browser, on WebAssembly', wholeNumber(0), 0)
    .addOption(
      new Option('--executor <kind>', 'what computes').choices(['webgpu', 'wasm', 'reference']).default('webgpu'),
    )
    .addOption(new Option('--as <kind>', 'compute on software adapters what GPUs would be given').choices(['gpu']))
    .option('--seed <n>', 'of initial values and order', wholeNumber(0), 1)
    .option('--json', 'print one JSON value on the last line of stdout')
    .exitOverride()
    .parse(argv, { from: 'user' })
    .opts<ParityOptions>()
  const line = new ProgressLine()
  const outcomes: ParityRun[] = []
  const imports = await mkdtemp(join(tmpdir(), 'starling-parity-imports-'))
  try {
    if (options.model === 'lora') await importLlama(imports, (text) => line.say(text))
    for (const grid of gridsOf(options)) outcomes.push(await train(grid, { ...options, imports }, line))
  } finally {
    await rm(imports, { recursive: true, force: true })
  }
  const result = compare(outcomes)
  line.say(
    `largest difference of a loss ${result.maxLossDifference.toExponential(2)}, ` +
      `of a parameter ${result.maxParameterDifference.toExponential(2)}; ` +
      `replicas ${result.replicasIdentical ? 'identical' : 'NOT KNOWN TO BE identical'}`,
  )
  if (options.json === true) console.log(JSON.stringify(result))
  return result.maxLossDifference <= MAX_LOSS_DIFFERENCE && result.replicasIdentical ? 0 : 1
}

function gridsOf({ volunteers, groups }: ParityOptions): readonly ParityGrid[] {
  if (groups === undefined) return volunteers.map((count) => ({ count, as: 'ring' }))
  return [{ count: Math.max(...groups), as: 'ring' }, ...groups.map((count) => ({ count, as: 'groups' as const }))]
}

/** Groups of one inner step push gradients, and a version takes in those of all. */
const AS_GROUPS = { mode: 'async', groups: { innerSteps: 1 }, async: { update: 'all' } } as const

async function train(
  { count, as: kind }: ParityGrid,
  { steps, executor, as, seed, model, tabs: wantedTabs, imports }: ParityOptions & { readonly imports: string },
  line: ProgressLine,
): Promise<ParityRun> {
  const tabs = Math.min(wantedTabs, count - 1)
  const webRoot = tabs === 0 ? undefined : await ensureWebPage((text) => line.say(text))
  const grid = await Grid.start({ datasetsDir: imports, ...(webRoot === undefined ? {} : { webRoot }) })
  const browser = tabs === 0 ? undefined : await launchBrowser()
  const folder = await mkdtemp(join(tmpdir(), 'starling-parity-'))
  try {
    const options = {
      stop: { steps },
      seed,
      minVolunteers: count,
      optimizer: OPTIMIZER,
    }
    // LeNet-5 as its authors have it, smooth. Whether a relu is open, or which cell is the largest, can hang on
    // rounding. Then one step differs by 1e-3 between any two orders of addition, on one machine as on many.
    const specs = {
      gpt: async () => textJob({ ...options, ...(await ensureText(folder, (text) => line.say(text))) }),
      lenet5: async () => ({ ...demoJob({ ...options, mode: 'ring' }), model: lenet5({ activation: 'tanh' }) }),
      lora: async () => tunedJob(options),
    }
    const job = await grid.submit({ ...(await specs[model]()), ...(kind === 'groups' ? AS_GROUPS : {}) })
    for (let i = 0; i < count - tabs; i++) grid.addVolunteer({ executor, as })
    for (let i = 0; i < tabs; i++) await lendTab(browser, grid.url)
    const name = kind === 'groups' ? `${count} replica groups` : `${count} volunteer${count > 1 ? 's' : ''}`
    grid.watch.onChange(() => line.show(`${name}: step ${grid.watch.steps.length} of ${steps}`))
    await grid.watch.waitFor('the last step', ({ run }) => run?.phase === 'finished' && run, 30 * 60 * 1000)
    await grid.exportModel(job, join(folder, 'model'))
    const { tensors } = readSafetensors(new Uint8Array(await readFile(join(folder, 'model'))))
    const { lines, identical } = endOf({ count, as: kind }, grid.watch)
    for (const text of lines) line.say(`${name}: ${text}`)
    return {
      losses: grid.watch.steps.map((step) => step.loss),
      parameters: new Map([...tensors].map(([name, tensor]) => [name, float32Values(tensor)])),
      identical,
    }
  } finally {
    await browser?.close()
    await grid.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

/** Groups hold no version between their rounds: the parameter server's is the only one. */
function endOf(
  { count, as: kind }: ParityGrid,
  { run, steps, events }: Watch,
): { readonly identical: boolean; readonly lines: readonly string[] } {
  const agreeing = run?.checkpoint?.agreeing
  const identical = kind === 'groups' || agreeing === count
  const replicas = kind === 'groups' ? '' : `, ${agreeing} of ${count} replicas agree`
  const last = `${steps.length} steps, last loss ${steps.at(-1)?.loss.toFixed(6)}${replicas}`
  return { identical, lines: identical ? [last] : [last, whyNotIdentical(events)] }
}

/** One that holds another state is named by the coordinator; one that was late with its digest is not. */
function whyNotIdentical(events: Watch['events']): string {
  const refusals = events.filter(({ kind }) => kind === 'refusal').map(({ text }) => text)
  if (refusals.length > 0) return refusals.join('; ')
  return 'no member held another state, but the coordinator did not hear from one in time; run this on an idle machine'
}

/** A context of its own: a hidden tab of a shared one would have slow timers. */
async function lendTab(browser: Awaited<ReturnType<typeof launchBrowser>> | undefined, url: string): Promise<void> {
  const page = await (await browser?.newContext())?.newPage()
  await page?.goto(`${url}/?executor=wasm`)
  await page?.locator('button[data-primary]').click()
}

function compare(outcomes: readonly ParityRun[]): {
  readonly maxLossDifference: number
  readonly maxParameterDifference: number
  readonly replicasIdentical: boolean
} {
  const [first, ...others] = outcomes
  let maxLossDifference = 0
  let maxParameterDifference = 0
  for (const other of others) {
    if (first === undefined || first.losses.length !== other.losses.length)
      throw new Error('internal: runs of different length')
    maxLossDifference = Math.max(maxLossDifference, largestDifference(first.losses, other.losses))
    for (const [name, values] of first.parameters)
      maxParameterDifference = Math.max(
        maxParameterDifference,
        largestDifference(values, other.parameters.get(name) ?? []),
      )
  }
  return {
    maxLossDifference,
    maxParameterDifference,
    replicasIdentical: outcomes.every((outcome) => outcome.identical),
  }
}

function largestDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let largest = 0
  for (let i = 0; i < a.length; i++) largest = Math.max(largest, Math.abs((a[i] ?? 0) - (b[i] ?? Number.NaN)))
  return largest
}
