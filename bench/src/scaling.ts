// What the model of scale predicts (cli/src/scaling): the production decisions on virtual time, links and machines as
// formulas. `peers.calm` is the same grid without churn, so its ratio is the goodput; `peers.ring` the same with churn,
// around the ring alone.
import { type FetchedShards, predict, type ScalePrediction, type Setting } from '@starling-grid/cli/scaling'
import { HOMES, LAB, MIXED, SOFTWARE } from '@starling-grid/cli/scaling/profiles'
import { asyncPolicy, DEFAULT_ASYNC } from '@starling-grid/coordinator/run'
import { encodedVectorBytes } from '@starling-grid/model'
import type { BenchRow } from './row.ts'
import { isWanted, type SuiteOptions } from './suite.ts'

/** of each link profile; and where it ends: more than a coordinator takes (MAX_VOLUNTEERS), minutes of real time */
const VOLUNTEERS = [1, 4, 10, 50, 200, 1000]
const MOST = 10_000
/** of all volunteers in a minute */
const CHURN = 0.2
/** ResNet-20: 272,474 parameters with momentum, 4,096 samples a step. */
const RESNET20 = {
  gradientBytes: 1_089_896,
  exchangeBytes: 1_089_896,
  stateBytes: 2_179_792,
  batchBlocks: 128,
  blockSamples: 32,
}
/** LeNet-5: 61,706 parameters with momentum, 256 samples a step: small enough that latency is most of a step. */
const LENET5 = { gradientBytes: 246_824, exchangeBytes: 246_824, stateBytes: 493_648, batchBlocks: 32, blockSamples: 8 }
/** versions that the parameter server keeps of a small model */
const KEPT_VERSIONS = 12
const SMALL_VOLUNTEERS = [1, 4, 10, 50]
const ALWAYS = {
  mode: 'auto',
  exchange: 'auto',
  roundSteps: 1,
  minVolunteers: 1,
  async: DEFAULT_ASYNC,
  stepMs: 0,
  warmUpSeconds: 60,
  seconds: 60,
  seed: 1,
} as const

type ScalingQuestion = Omit<Setting, 'churnPerMinute'>

/**
 * Rounds of replica groups, as long as the run finds best, with differences of 8 bits and versions of halves (coded as
 * in protocol/src/floats). Blocks are larger, since the coordinator keeps a lease for each. Rounds of a thousand
 * members last a minute.
 */
const GROUPS = {
  mode: 'async',
  async: asyncPolicy(undefined, KEPT_VERSIONS, {}),
  pushBytes: RESNET20.exchangeBytes * (0.25 + 1 / 256),
  pullBytes: RESNET20.exchangeBytes / 2,
  batchBlocks: 2,
  blockSamples: 2048,
  warmUpSeconds: 160,
  seconds: 160,
} as const
const CROWDS = [10, 50, 200, 1000]
/**
 * Measured by `bench coordinator --only pushes`: processor time of the coordinator for a sparse push of ResNet-20 that
 * goes on to four processes of the parameter server as it came. No push is taken in before the one before it is
 * through. On four machines: assumed.
 */
const ADD_WITH_FOUR_SHARDS_MS = 3
/**
 * Pushes of so many would fill the coordinator's line in 8 bits a number: theirs are sparse. Blocks are so large that a
 * version holds most rounds (MAX_VERSION_BLOCKS). The first rounds, of which all fetch the seed's version from the
 * coordinator, are over when the measurement begins.
 */
const LARGEST_CROWD = {
  volunteers: MOST,
  pushBytes: encodedVectorBytes(272_474, 'sparse2'),
  blocks: 2_000_000,
  blockSamples: 8192,
  addMs: ADD_WITH_FOUR_SHARDS_MS,
  warmUpSeconds: 350,
  seconds: 600,
}

/**
 * Of a dataset of 5 M colour pictures of 32 × 32 (15.7 GB), in blocks of a usual size and shards of 2,048 samples. All
 * of it goes through the coordinator's line first, which takes two minutes at least.
 */
const CROWD_WITH_DATA = {
  volunteers: 200,
  blocks: 160_000,
  shardBlocks: 64,
  shardBytes: 2048 * 3073,
  blockSamples: 32,
  batchBlocks: 128,
  warmUpSeconds: 300,
  seconds: 300,
}

export async function scalingSuite(options: SuiteOptions): Promise<BenchRow[]> {
  const wanted = Object.entries(questions()).filter(([name]) => isWanted(options, name))
  return wanted.map(([name, question]) => {
    const began = performance.now()
    const found =
      question.async.groups === undefined ? row(name, question, options.log) : crowdRow(name, question, options.log)
    options.log(`  predicted in ${Math.round((performance.now() - began) / 1000)} s`)
    return found
  })
}

function questions(): Record<string, ScalingQuestion> {
  const large = [HOMES, LAB].flatMap((links) =>
    (links === HOMES ? [...VOLUNTEERS, MOST] : VOLUNTEERS).map((volunteers) => ({
      ...RESNET20,
      ...ALWAYS,
      links,
      machines: MIXED,
      volunteers,
    })),
  )
  const small = SMALL_VOLUNTEERS.map((volunteers) => ({
    ...LENET5,
    ...ALWAYS,
    links: HOMES,
    machines: SOFTWARE,
    volunteers,
  }))
  const crowds = [...CROWDS.map((volunteers) => ({ volunteers })), LARGEST_CROWD, CROWD_WITH_DATA].map((crowd) => ({
    ...RESNET20,
    ...ALWAYS,
    ...GROUPS,
    links: HOMES,
    machines: MIXED,
    ...crowd,
  }))
  const nameOf = ({ links, volunteers, machines, async, shardBlocks }: ScalingQuestion): string => {
    const kinds = [machines === SOFTWARE && 'LeNet-5', async.groups && 'groups', shardBlocks && 'data'].filter(Boolean)
    return [`scaling ${links.name} ${volunteers}`, ...kinds].join(', ')
  }
  return Object.fromEntries([...large, ...small, ...crowds].map((question) => [nameOf(question), question]))
}

function row(name: string, setting: ScalingQuestion, log: SuiteOptions['log']): BenchRow {
  const calm = predict({ ...setting, churnPerMinute: 0 })
  const churned = predict({ ...setting, churnPerMinute: CHURN })
  const ring = churned.directShare === 0 ? churned : predict({ ...setting, exchange: 'ring', churnPerMinute: CHURN })
  log(
    `${name} volunteers: calm ${asText(calm)}; ${100 * CHURN} % churn a minute ${asText(churned)}; ` +
      `${Math.round(ring.samplesPerSecond)} samples/s around the ring alone`,
  )
  const ours = Math.round(churned.samplesPerSecond)
  const peers = { calm: Math.round(calm.samplesPerSecond), ring: Math.round(ring.samplesPerSecond) }
  const times = (peer: number): number => Number((ours / peer).toFixed(3))
  return {
    name,
    adapter: 'model',
    ours,
    unit: 'samples/s, predicted',
    min: ours,
    max: ours,
    peers,
    ratio: { calm: times(peers.calm), ring: times(peers.ring) },
  }
}

/** `peers.alone`: what the machines train without each other, together. */
function crowdRow(name: string, setting: ScalingQuestion, log: SuiteOptions['log']): BenchRow {
  const calm = predict({ ...setting, churnPerMinute: 0 })
  const churned = predict({ ...setting, churnPerMinute: CHURN })
  const { samplesPerSecond: speeds } = setting.machines
  const all = Array.from({ length: setting.volunteers }, (_, i) => speeds[i % speeds.length] ?? 0)
  const alone = all.reduce((sum, speed) => sum + speed, 0)
  const told = ({
    samplesPerSecond,
    weight,
    coordinatorCores,
    coordinatorBytesPerSecond,
    shards,
  }: ScalePrediction): string =>
    `${Math.round(samplesPerSecond)} samples/s, ${((100 * samplesPerSecond) / alone).toFixed(0)} % of ${alone}, ` +
    `which count ${(100 * weight).toFixed(0)} %, ` +
    `coordinator ${(100 * coordinatorCores).toFixed(1)} % of a core and ` +
    `${((8 * coordinatorBytesPerSecond) / 1e6).toFixed(0)} Mbit/s${shards === undefined ? '' : `, ${dataText(shards)}`}`
  log(`${name} volunteers: calm ${told(calm)}; ${100 * CHURN} % churn a minute ${told(churned)}`)
  const ours = Math.round(calm.samplesPerSecond)
  const percent = (weight: number): number => Math.round(100 * weight)
  const peers = { alone, churned: Math.round(churned.samplesPerSecond) }
  const times = (peer: number): number => Number((ours / peer).toFixed(3))
  return {
    name,
    adapter: 'model',
    ours,
    unit: 'samples/s, predicted',
    min: ours,
    max: ours,
    peers,
    ratio: { alone: times(peers.alone), churned: times(peers.churned) },
    counts: { '% that a sample counts': percent(calm.weight), '% with churn': percent(churned.weight) },
  }
}

function dataText({ ofGrant, ofMember, all }: FetchedShards): string {
  return `${ofGrant.toFixed(1)} of ${all} shards for a round, ${ofMember.toFixed(1)} for all rounds of a member`
}

function asText({
  samplesPerSecond,
  ringSize,
  directShare,
  ballotsPerMinute,
  coordinatorCores,
  coordinatorBytesPerSecond,
}: ScalePrediction): string {
  return (
    `${Math.round(samplesPerSecond)} samples/s in a ring of ${ringSize.toFixed(0)}, ` +
    `${(100 * directShare).toFixed(0)} % of the time as a direct exchange, ` +
    `${ballotsPerMinute.toFixed(0)} ballots a minute, coordinator ${(100 * coordinatorCores).toFixed(1)} % of a ` +
    `core and ${(coordinatorBytesPerSecond / 1000).toFixed(0)} kB/s`
  )
}
