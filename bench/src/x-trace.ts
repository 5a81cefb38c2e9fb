import { setTimeout as delay } from 'node:timers/promises'
import { newMemberId } from '@starling-grid/protocol'
import { startLocalSignalling } from '@starling-grid/client-node'
import { reroute } from './lines/reroute.ts'
import { ShapedPath } from './lines/shaped-path.ts'
import { startPair } from './links.ts'
const [kinds, megabits, latencyMs, loss, n, secs] = process.argv.slice(2)
const path = await ShapedPath.open({ megabits: +megabits!, latencyMs: +latencyMs!, loss: +loss! }, 32)
const [from, to] = await startPair(kinds!.split(',') as never)
const signalling = await startLocalSignalling(reroute((c, s) => path.face(c, s)))
const [near, far] = [newMemberId(), newMemberId()]
await from.call('join', signalling.access(near))
await to.call('join', signalling.access(far))
await to.call('expect', near)
for (let i = 0; i < +n!; i++) await from.call('dial', far)
await from.call('push')
import { readFileSync } from 'node:fs'
const drops = () => readFileSync('/proc/net/udp','utf8').trim().split('\n').slice(1).map(l=>l.trim().split(/\s+/)).filter(f=>+f.at(-1)!>0).map(f=>f[1]+':'+f.at(-1)).join(' ')
let last = 0, lastC: Record<string, number> = {}
for (let i = 0; i < +secs! * 2; i++) {
  await delay(500)
  const { bytes } = (await to.call('arrived')) as { bytes: number }
  const c = path.counts
  console.log(((i + 1) / 2).toFixed(1), ((bytes - last) / 5e5).toFixed(2), 'MB/s; ', Object.entries(c).map(([k, v]) => v - (lastC[k] ?? 0)).join(' '), drops())
  last = bytes; lastC = { ...c }
}
process.exit(0)
