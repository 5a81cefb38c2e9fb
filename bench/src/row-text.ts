// A row of a benchmark as people read it.
import { reachText } from './report.ts'
import type { BenchRow } from './row.ts'

export function rowText(row: BenchRow): string {
  const { name, adapter, ours, min, max, unit, peers, ratio, spread = {}, missing = {}, firstRunMs = {} } = row
  const counts = Object.entries(row.counts ?? {}).map(([what, count]) => `${count} ${what}`)
  const others = Object.entries(peers).map(
    ([peer, value]) =>
      `  ${peer.padEnd(16)} ${String(value).padStart(8)} ${unit} [${spread[peer]?.join(' … ') ?? ''}], ` +
      `ours is ${ratio[peer]}× as good${first(firstRunMs[peer])}`,
  )
  const absent = Object.entries(missing).map(([peer, reason]) => `  without ${peer}: ${reason}`)
  return [
    `${name}: ${ours} ${unit} [${min} … ${max}] on ${adapter}${first(firstRunMs['starling'])}`,
    ...others,
    ...absent,
    ...(row.reach === undefined ? [] : [`  wanted: ${reachText(row)}`]),
    ...(counts.length === 0 ? [] : [`  ${counts.join(', ')}`]),
  ].join('\n')
}

function first(ms: number | undefined): string {
  return ms === undefined ? '' : `, first run ${ms} ms`
}
