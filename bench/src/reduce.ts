// All-reduce among processes of this machine, or among tabs: bus bandwidth, 2(N−1)/N · bytes ÷ time. Compared with the
// same ranks that only send and receive as much over links of the same kind, in the same directions at once. Compared
// also with PyTorch's gloo, which speaks plain TCP. All ranks share this machine's cores, so the ratio to the raw links
// says something and the rate does not.
import { type Gloo, openGloo } from './gloo.ts'
import type { Missing } from './library.ts'
import { type Ranks, slowest, startProcesses, startTabs } from './rank-orders.ts'
import type { RankAnswer } from './rank.ts'
import { type BenchRow, type Contender, median, race } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const SIZES = [2, 4]
const MEGABYTES = [4, 16]
/** All-reduces before the first that counts: training makes thousands, with code that was compiled long ago. */
const WARM_UP = 40
const WARM_UP_NUMBERS = 1_000_000
/** Of the raw links' rate: the rest is what adding, checking and ordering cost. */
const REACH = { peer: 'raw', ratio: 0.85 }

type MeasureOptions = Pick<SuiteOptions, 'rounds' | 'in' | 'log'>

export async function reduceSuite({ rounds, in: place, log }: MeasureOptions): Promise<BenchRow[]> {
  const rows: BenchRow[] = []
  for (const size of SIZES) {
    log(`${size} ${place === 'node' ? 'processes' : 'tabs'}`)
    const ranks = await (place === 'node' ? startProcesses(size) : startTabs(size))
    const gloo = await openGloo(size)
    try {
      for (let i = 0; i < (place === 'node' ? WARM_UP : 1); i++)
        for (const type of ['reduce', 'raw'] as const)
          await ranks.order({ type, numbers: WARM_UP_NUMBERS, encoding: 'f32' })
      for (const megabytes of MEGABYTES) rows.push(...(await measure({ ranks, gloo, place }, megabytes, rounds)))
    } finally {
      if ('order' in gloo) gloo.close()
      await ranks.close()
    }
  }
  return rows
}

interface Field {
  readonly ranks: Ranks
  readonly gloo: Gloo | Missing
  readonly place: 'node' | 'browser'
}

/**
 * One row of time and, of processes, one of the work that all threads of all ranks did. What else the machine does
 * counts in the first only.
 */
async function measure({ ranks, gloo, place }: Field, megabytes: number, rounds: number): Promise<BenchRow[]> {
  const numbers = (megabytes * 1e6) / 4
  const rateOf = (ms: number): number => (2 * (ranks.size - 1) * 4 * numbers) / ranks.size / 1000 / ms
  const answers: Record<'reduce' | 'raw', (readonly RankAnswer[])[]> = { reduce: [], raw: [] }
  const rate =
    (type: 'reduce' | 'raw'): Contender =>
    async () => {
      const all = await ranks.order({ type, numbers, encoding: 'f32' })
      answers[type].push(all)
      return rateOf(slowest(all))
    }
  await ranks.order({ type: 'check', numbers, encoding: 'f32' })
  const name = `all-reduce ${megabytes} MB, ${ranks.size} ranks`
  const adapter = place === 'node' ? 'node-datachannel' : 'WebRTC'
  const peers: Record<string, Contender> = { raw: rate('raw') }
  if ('order' in gloo) peers['gloo (TCP)'] = async () => rateOf(await gloo.order(numbers))
  const row = await race({ name, adapter, unit: 'MB/s', reach: REACH }, rate('reduce'), peers, rounds)
  const noted =
    'order' in gloo
      ? { ...row, versions: { 'gloo (TCP)': gloo.version } }
      : { ...row, missing: { [gloo.name]: gloo.reason } }
  return place === 'node' ? [noted, work(name, adapter, answers)] : [noted]
}

function work(
  name: string,
  adapter: string,
  answers: Readonly<Record<'reduce' | 'raw', readonly (readonly RankAnswer[])[]>>,
): BenchRow {
  const cpu = (all: readonly RankAnswer[]): number => all.reduce((sum, { cpuMilliseconds }) => sum + cpuMilliseconds, 0)
  // the first of each is the warm-up
  const [ours, raw] = [answers.reduce.slice(1).map(cpu), answers.raw.slice(1).map(cpu)]
  const [own, other] = [Math.round(median(ours)), Math.round(median(raw))]
  return {
    name: `${name}: work`,
    adapter,
    unit: 'CPU ms',
    better: 'less',
    ours: own,
    min: Math.round(Math.min(...ours)),
    max: Math.round(Math.max(...ours)),
    peers: { raw: other },
    ratio: { raw: Number((other / own).toPrecision(4)) },
  }
}
