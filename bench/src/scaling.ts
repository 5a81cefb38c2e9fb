// What the model of scale predicts (e2e/src/scaling): the production decisions on virtual time, links and machines as formulas.
// `peers.calm` is the same grid without churn, so its ratio is the goodput.
import { predict, type Prediction, type Setting } from '@starling-grid/e2e/scaling'
import { HOMES, LAB, MIXED } from '@starling-grid/e2e/scaling/profiles'
import type { BenchRow } from './row.ts'
import type { SuiteOptions } from './suite.ts'

/** of each link profile; and where it ends: more than a coordinator takes (MAX_VOLUNTEERS), minutes of real time */
const VOLUNTEERS = [1, 4, 10, 50, 200, 1000]
const MOST = 10_000
/** of all volunteers in a minute */
const CHURN = 0.2
/** ResNet-20: 272,474 parameters with momentum, 4,096 samples a step. */
const RESNET20 = { gradientBytes: 1_089_896, stateBytes: 2_179_792, batchBlocks: 128, blockSamples: 32 }
const TIMES = { warmUpSeconds: 60, seconds: 60, seed: 1 }

export async function scalingSuite({ log }: SuiteOptions): Promise<BenchRow[]> {
  const rows: BenchRow[] = []
  for (const links of [HOMES, LAB])
    for (const volunteers of links === HOMES ? [...VOLUNTEERS, MOST] : VOLUNTEERS) {
      const setting: Setting = { ...RESNET20, ...TIMES, links, machines: MIXED, mode: 'auto', volunteers, churnPerMinute: 0 }
      const calm = predict(setting)
      const churned = predict({ ...setting, churnPerMinute: CHURN })
      log(`${links.name}, ${volunteers} volunteers: calm ${asText(calm)}; ${100 * CHURN} % churn a minute ${asText(churned)}`)
      rows.push(row(`scaling ${links.name} ${volunteers}`, churned, calm))
    }
  return rows
}

function row(name: string, churned: Prediction, calm: Prediction): BenchRow {
  const ours = Math.round(churned.samplesPerSecond)
  const peers = { calm: Math.round(calm.samplesPerSecond) }
  return { name, adapter: 'model', ours, unit: 'samples/s, predicted', min: ours, max: ours, peers, ratio: { calm: Number((ours / peers.calm).toFixed(3)) } }
}

function asText({ samplesPerSecond, ringSize, ballotsPerMinute, coordinatorCores, coordinatorBytesPerSecond }: Prediction): string {
  return `${Math.round(samplesPerSecond)} samples/s in a ring of ${ringSize.toFixed(0)}, ${ballotsPerMinute.toFixed(0)} ballots a minute, coordinator ${(100 * coordinatorCores).toFixed(1)} % of a core and ${(coordinatorBytesPerSecond / 1000).toFixed(0)} kB/s`
}
