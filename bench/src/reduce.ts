// All-reduce among processes of this machine over TCP and over WebRTC, or among tabs: bus bandwidth, 2(N−1)/N · bytes ÷
// time. Compared with the same ranks that only send and receive as much over links of the same kind, in the same
// directions at once, and with TLS sockets that no link is made of. Compared also with PyTorch's gloo, which speaks
// plain TCP. All ranks share this machine's cores, so the ratios say something and the rate does not.
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
const REACH = 0.85

type MeasureOptions = Pick<SuiteOptions, 'rounds' | 'in' | 'only' | 'log'>
type Kind = 'tcp' | 'webrtc' | 'tab'

/** What rows are named after. */
const ADAPTERS: Readonly<Record<Kind, string>> = { tcp: 'TCP', webrtc: 'WebRTC', tab: 'WebRTC' }

export async function reduceSuite({ rounds, in: place, only, log }: MeasureOptions): Promise<BenchRow[]> {
  const rows: BenchRow[] = []
  const kinds: readonly Kind[] = place === 'node' ? ['tcp', 'webrtc'] : ['tab']
  for (const size of SIZES)
    for (const kind of kinds)
      if (isWanted(only, size, kind)) rows.push(...(await measureAll({ size, kind, rounds, log })))
  return rows
}

function isWanted(only: string | undefined, size: number, kind: Kind): boolean {
  return only === undefined || `${size} ranks, ${ADAPTERS[kind]}`.includes(only)
}

async function measureAll({
  size,
  kind,
  rounds,
  log,
}: Pick<MeasureOptions, 'rounds' | 'log'> & { readonly size: number; readonly kind: Kind }): Promise<BenchRow[]> {
  log(`${size} ${kind === 'tab' ? 'tabs' : 'processes'} over ${ADAPTERS[kind]}`)
  const ranks = await (kind === 'tab' ? startTabs(size) : startProcesses(size, kind === 'tcp'))
  const gloo = await openGloo(size)
  const rows: BenchRow[] = []
  try {
    for (let i = 0; i < (kind === 'tab' ? 1 : WARM_UP); i++)
      for (const type of kind === 'tcp' ? (['reduce', 'raw', 'tls'] as const) : (['reduce', 'raw'] as const))
        await ranks.order({ type, numbers: WARM_UP_NUMBERS, encoding: 'f32' })
    for (const megabytes of MEGABYTES) rows.push(...(await measure({ ranks, gloo, kind }, megabytes, rounds)))
  } finally {
    if ('order' in gloo) gloo.close()
    await ranks.close()
  }
  return rows
}

type MeasuredReduce = 'reduce' | 'raw' | 'tls'

interface Field {
  readonly ranks: Ranks
  readonly gloo: Gloo | Missing
  readonly kind: Kind
}

/**
 * One row of time and, of processes, one of the work that all threads of all ranks did. What else the machine does
 * counts in the first only.
 */
async function measure({ ranks, gloo, kind }: Field, megabytes: number, rounds: number): Promise<BenchRow[]> {
  const numbers = (megabytes * 1e6) / 4
  const rateOf = (ms: number): number => (2 * (ranks.size - 1) * 4 * numbers) / ranks.size / 1000 / ms
  const answers: Record<MeasuredReduce, (readonly RankAnswer[])[]> = { reduce: [], raw: [], tls: [] }
  const rate =
    (type: MeasuredReduce): Contender =>
    async () => {
      const all = await ranks.order({ type, numbers, encoding: 'f32' })
      answers[type].push(all)
      return rateOf(slowest(all))
    }
  await ranks.order({ type: 'check', numbers, encoding: 'f32' })
  const name = `all-reduce ${megabytes} MB, ${ranks.size} ranks`
  const adapter = ADAPTERS[kind]
  const peers: Record<string, Contender> = { raw: rate('raw'), ...(kind === 'tcp' ? { TLS: rate('tls') } : {}) }
  const reach = { peer: kind === 'tcp' ? 'TLS' : 'raw', ratio: REACH }
  if ('order' in gloo) peers['gloo (TCP)'] = async () => rateOf(await gloo.order(numbers))
  const row = await race({ name, adapter, unit: 'MB/s', reach }, rate('reduce'), peers, rounds)
  const noted =
    'order' in gloo
      ? { ...row, versions: { 'gloo (TCP)': gloo.version } }
      : { ...row, missing: { [gloo.name]: gloo.reason } }
  return kind === 'tab' ? [noted] : [noted, work(name, adapter, answers)]
}

function work(
  name: string,
  adapter: string,
  { reduce, raw, tls }: Readonly<Record<MeasuredReduce, readonly (readonly RankAnswer[])[]>>,
): BenchRow {
  const cpu = (all: readonly RankAnswer[]): number => all.reduce((sum, { cpuMilliseconds }) => sum + cpuMilliseconds, 0)
  // the first of each is the warm-up
  const ours = reduce.slice(1).map(cpu)
  const own = Math.round(median(ours))
  const others = Object.entries({ raw, TLS: tls }).flatMap(([peer, all]): [string, number][] =>
    all.length > 0 ? [[peer, Math.round(median(all.slice(1).map(cpu)))]] : [],
  )
  return {
    name: `${name}: work`,
    adapter,
    unit: 'CPU ms',
    better: 'less',
    ours: own,
    min: Math.round(Math.min(...ours)),
    max: Math.round(Math.max(...ours)),
    peers: Object.fromEntries(others),
    ratio: Object.fromEntries(others.map(([peer, other]) => [peer, Number((other / own).toPrecision(4))])),
  }
}
