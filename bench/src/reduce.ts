// All-reduce among processes of this machine: bus bandwidth, 2(N−1)/N · bytes ÷ time, against the same processes that only send
// and receive as much over links of the same kind, in the same directions at once. All ranks share this machine's cores, so
// the ratio says something and the rate does not.
import type { ChildProcess } from 'node:child_process'
import { orderAll, slowest, startRanks } from './rank-orders.ts'
import { type BenchRow, median, race } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const SIZES = [2, 4]
const MEGABYTES = [4, 16]
const ADAPTER = 'node-datachannel'

export async function reduceSuite({ rounds, log }: Pick<SuiteOptions, 'rounds' | 'log'>): Promise<BenchRow[]> {
  const rows: BenchRow[] = []
  for (const size of SIZES) {
    log(`${size} ranks`)
    const { processes, ended } = await startRanks(size)
    for (const megabytes of MEGABYTES) rows.push(...(await measure(processes, megabytes, rounds)))
    await orderAll(processes, { type: 'leave', numbers: 0, encoding: 'f32' })
    await ended
  }
  return rows
}

/** One row of time, one of the work that all threads of all ranks did: what else the machine does counts in the first only. */
async function measure(processes: readonly ChildProcess[], megabytes: number, rounds: number): Promise<BenchRow[]> {
  const size = processes.length
  const numbers = (megabytes * 1e6) / 4
  const busBytes = (2 * (size - 1) * 4 * numbers) / size
  const cpu: Record<'reduce' | 'raw', number[]> = { reduce: [], raw: [] }
  const rate = (type: 'reduce' | 'raw') => async () => {
    const answers = await orderAll(processes, { type, numbers, encoding: 'f32' })
    cpu[type].push(answers.reduce((sum, { cpuMilliseconds }) => sum + cpuMilliseconds, 0))
    return busBytes / 1000 / slowest(answers)
  }
  await orderAll(processes, { type: 'check', numbers, encoding: 'f32' })
  const name = `all-reduce ${megabytes} MB, ${size} ranks`
  const row = await race({ name, adapter: ADAPTER, unit: 'MB/s' }, rate('reduce'), { raw: rate('raw') }, rounds)
  const [ours, raw] = [median(cpu.reduce), median(cpu.raw)]
  const work = { name: `${name}: work`, adapter: ADAPTER, unit: 'CPU ms', better: 'less' as const, peers: { raw }, ratio: { raw: Number((raw / ours).toPrecision(4)) } }
  return [row, { ...work, ours, min: Math.min(...cpu.reduce), max: Math.max(...cpu.reduce) }]
}
