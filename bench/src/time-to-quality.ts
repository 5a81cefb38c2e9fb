// How much sooner a crowd trains LeNet-5 to 97.5 % of MNIST's official test digits: virtual time of the model of scale,
// real arithmetic (digit-learning.ts). Members compute 500 samples a second behind home lines. Rounds, versions and
// what becomes of late ones are production's decisions. Tests take no virtual time. Says where more volunteers gain
// little, and why.
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { type LearnedRun, learnOn, type Setting } from '@starling-grid/cli/scaling'
import { HOMES } from '@starling-grid/cli/scaling/profiles'
import { readMnistFolder } from '@starling-grid/coordinator/datasets'
import { asyncPolicy } from '@starling-grid/coordinator/run'
import { encodedVectorBytes, lenet5, parameterCount } from '@starling-grid/model'
import { epochOrder, genesis, GridError, jobId } from '@starling-grid/protocol'
import { createWasmExecutor } from '@starling-grid/volunteer/wasm'
import { DigitLearning, type DigitSamples } from './digit-learning.ts'
import { type BenchRow, compared } from './row.ts'
import { isWanted, type SuiteOptions } from './suite.ts'

const MNIST = fileURLToPath(new URL('../../../shared/data/mnist', import.meta.url))
const VOLUNTEERS = [1, 4, 16, 64, 256]
const TARGET = 0.975
/** `short`: what shows that the suite works */
const SHORT = { volunteers: [1, 4], target: 0.8, digits: 2000 }
const SAMPLES_PER_SECOND = 500
const BLOCK_SAMPLES = 4
/** as MNIST is imported: shards of 2,000 digits */
const SHARD_BLOCKS = 500
const PIXELS = 28 * 28
/** Inner steps are of one block: 64 members have 40 of them in a round. */
const BATCH_BLOCKS = 1
const KEPT_VERSIONS = 12
const ENCODING = 'int8'
/** of one member: `crowdRate` makes it 1.8 times as much for four, and 3.7 times for 64 */
const OPTIMIZER = { type: 'adam', lr: 0.0008 } as const
/** the number of inner steps comes with each grant */
const LOCAL = { innerSteps: 16, outerLr: 0.7, outerMomentum: 0.75 }
/** virtual seconds after which a run that is not good enough is given up */
const MOST_SECONDS = 1800
/** Times as long a run with four times the volunteers may take and still count as gaining. */
const GAINS = 1.5
const AIM = 5

interface QualityRun extends LearnedRun {
  readonly seconds: number
  readonly accuracy: number
}

/** Of the virtual ms from one version to the next: a member computes, moves bytes, and waits for the others. */
interface VersionTime {
  readonly all: number
  readonly computes: number
  readonly exchanges: number
  readonly waits: number
}

interface MnistDigits {
  readonly train: DigitSamples
  readonly validation: DigitSamples
}

export async function timeToQualitySuite(options: SuiteOptions): Promise<BenchRow[]> {
  const { volunteers, target, digits } = options.short
    ? SHORT
    : { volunteers: VOLUNTEERS, target: TARGET, digits: Infinity }
  if (!existsSync(MNIST))
    throw new GridError('usage', `expected MNIST's files in ${MNIST}, got none; see bench/results/README.md`)
  const all = await readMnistFolder(MNIST)
  const data = { ...all, train: mixed(firstOf(all.train, digits)), validation: firstOf(all.validation, digits) }
  const runs: QualityRun[] = []
  for (const count of volunteers)
    if (isWanted(options, `time to quality ${count}`))
      runs.push(await trained(count, { data, target, log: options.log }))
  for (const line of curve(runs)) options.log(line)
  return rows(runs)
}

function firstOf({ x, y }: DigitSamples, count: number): DigitSamples {
  return { x: x.subarray(0, Math.min(count, y.length) * PIXELS), y: y.subarray(0, count) }
}

/** As an import stores them: MNIST lies writer by writer. */
function mixed({ x, y }: DigitSamples): DigitSamples {
  const into = { x: x.slice(), y: y.slice() }
  for (const [to, from] of epochOrder(1, 0, y.length).entries()) {
    into.x.set(x.subarray(from * PIXELS, (from + 1) * PIXELS), to * PIXELS)
    into.y[to] = y[from] ?? 0
  }
  return into
}

async function trained(
  volunteers: number,
  { data, target, log }: { readonly data: MnistDigits; readonly target: number; readonly log: SuiteOptions['log'] },
): Promise<QualityRun> {
  log(`${volunteers} volunteers`)
  const spec = lenet5()
  const executor = await createWasmExecutor(spec)
  const learning = new DigitLearning({
    executor,
    spec,
    optimizer: OPTIMIZER,
    local: LOCAL,
    encoding: ENCODING,
    blockSamples: BLOCK_SAMPLES,
    train: data.train,
    test: data.validation,
    target,
    seed: 1,
    log,
  })
  try {
    const setting = settingOf(volunteers, data.train.y.length)
    await learning.begin(genesis(jobId('scaling'), 'model', setting.seed))
    const run = await learnOn(setting, learning)
    const { reachedAt = Number.POSITIVE_INFINITY, accuracy } = learning
    return { ...run, seconds: (reachedAt - run.beganAt) / 1000, accuracy }
  } finally {
    executor.destroy()
  }
}

function settingOf(volunteers: number, digits: number): Setting {
  const count = parameterCount(lenet5())
  const gradientBytes = Float32Array.BYTES_PER_ELEMENT * count
  return {
    volunteers,
    links: HOMES,
    machines: { name: 'equal', samplesPerSecond: [SAMPLES_PER_SECOND] },
    churnPerMinute: 0,
    mode: 'async',
    exchange: 'auto',
    roundSteps: 1,
    // all are there when the clock starts
    minVolunteers: volunteers,
    async: asyncPolicy(undefined, KEPT_VERSIONS, { crowdRate: 'sqrt' }),
    gradientBytes,
    exchangeBytes: encodedVectorBytes(count, ENCODING),
    pushBytes: encodedVectorBytes(count, ENCODING),
    pullBytes: encodedVectorBytes(count, 'f16'),
    stateBytes: 2 * gradientBytes,
    blocks: Math.ceil(digits / BLOCK_SAMPLES),
    shardBlocks: SHARD_BLOCKS,
    batchBlocks: BATCH_BLOCKS,
    blockSamples: BLOCK_SAMPLES,
    stepMs: 0,
    warmUpSeconds: 0,
    seconds: MOST_SECONDS,
    seed: 1,
  }
}

function versionTime({ seconds, versions, computeMs, roundMs }: QualityRun): VersionTime {
  const all = (1000 * seconds) / Math.max(1, versions)
  const exchanges = roundMs - computeMs
  return { all, computes: computeMs, exchanges, waits: Math.max(0, all - roundMs) }
}

function curve(runs: readonly QualityRun[]): string[] {
  const lines = runs.map(
    ({ volunteers, seconds, samples, versions, accuracy, computeMs, roundMs, noiseScale, reason }) =>
      `${volunteers} volunteers: ${seconds.toFixed(1)} s to ${(100 * accuracy).toFixed(2)} %, ${samples} samples in ` +
      `${versions} versions; a round computes ${Math.round(computeMs)} of ${Math.round(roundMs)} ms` +
      `${noiseScale === undefined ? '' : `; noise scale ${Math.round(noiseScale)} samples`}; ${reason}`,
  )
  return [...lines, saturation(runs)]
}

/** From where on four times the volunteers gain little, and what they lose it to. */
function saturation(runs: readonly QualityRun[]): string {
  const at = runs.findIndex((run, i) => i > 0 && (runs[i - 1]?.seconds ?? 0) < GAINS * run.seconds)
  const [last, next] = [runs[at - 1], runs[at]]
  if (last === undefined || next === undefined) return 'no point of saturation in these runs'
  const beside = (run: QualityRun): number => Math.round(100 * (1 - run.computeMs / versionTime(run).all))
  return (
    `saturates at ${last.volunteers} volunteers: ${next.volunteers} are ${(last.seconds / next.seconds).toFixed(2)} ` +
    `times as fast. ${beside(next)} % of their time is exchange and waiting (${last.volunteers}: ` +
    `${beside(last)} %), and they need ` +
    `${(next.samples / last.samples).toFixed(2)} times the samples`
  )
}

/** Each beside the fewest, and 64 beside four. */
function rows(runs: readonly QualityRun[]): BenchRow[] {
  const secondsOf = (count: number): number | undefined => runs.find(({ volunteers }) => volunteers === count)?.seconds
  const four = secondsOf(4)
  return runs.map((run) => {
    const { volunteers, seconds } = run
    const reach = volunteers === 64 && four !== undefined ? { reach: { peer: '4 volunteers', ratio: AIM } } : {}
    const head = { name: `time to quality ${volunteers}`, adapter: 'wasm', unit: 'virtual seconds', better: 'less' }
    const peers = four === undefined || volunteers === 4 ? {} : { '4 volunteers': [four] }
    return { ...compared({ ...head, better: 'less', ...reach }, [seconds], peers), counts: countsOf(run) }
  })
}

/** What stands beside the seconds, in the row and in its JSON. */
function countsOf(run: QualityRun): Readonly<Record<string, number>> {
  const { all, computes, exchanges, waits } = versionTime(run)
  return {
    versions: run.versions,
    samples: run.samples,
    'ms a version': Math.round(all),
    'ms computing': Math.round(computes),
    'ms of bytes and latency': Math.round(exchanges),
    'ms of waiting': Math.round(waits),
    ...(run.noiseScale === undefined ? {} : { 'samples of noise scale': Math.round(run.noiseScale) }),
  }
}
