// One WebRTC link over lines of homes, between real processes and real tabs: MB/s of frames that arrive, from two
// seconds after the first was sent, and after a rest of two seconds. `udp` is what bare packets carry over the same
// line in the same minute: the share of it is the link's. The line is a path in this process (lines/shaped-path.ts).
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { openPages } from '@starling-grid/cli/browser'
import { startLocalSignalling } from '@starling-grid/client-node'
import { newMemberId } from '@starling-grid/protocol'
import type { BarePush, LineAnswer, LineOrder } from './lines/end-process.ts'
import type { Arrived } from './lines/end.ts'
import type { HomeLine } from './lines/line.ts'
import { reroute } from './lines/reroute.ts'
import { ShapedPath } from './lines/shaped-path.ts'
import { type BenchRow, type Contender, race } from './row.ts'
import { isWanted, type SuiteOptions } from './suite.ts'

/** ms one way */
const LATENCIES = [20, 50, 100]
const MEGABITS = [20, 100]
/** Of packets: a wired line of a home loses about as many, and one behind a busy Wi-Fi fifty times as many. */
const LOSS = 1e-4
const WIRELESS_LOSS = 5e-3
const LINES: readonly HomeLine[] = [
  ...LATENCIES.flatMap((latencyMs) => MEGABITS.map((megabits) => ({ megabits, latencyMs, loss: 0 }))),
  { megabits: 100, latencyMs: 50, loss: LOSS },
  { megabits: 20, latencyMs: 20, loss: WIRELESS_LOSS },
  { megabits: 200, latencyMs: 50, loss: 0 },
]
type EndKind = 'Node' | 'Chromium'
const PAIRS: readonly (readonly [EndKind, EndKind])[] = [
  ['Node', 'Node'],
  ['Chromium', 'Chromium'],
  ['Chromium', 'Node'],
  ['Node', 'Chromium'],
]
/** ms of a rest, as members have one between two steps; the senders are those whose SCTP forgets its line in it. */
const REST_MS = 2000
const RESTING_LINES: readonly HomeLine[] = [
  { megabits: 20, latencyMs: 100, loss: 0 },
  { megabits: 100, latencyMs: 50, loss: 0 },
]
const RESTING_PAIRS = PAIRS.filter(([from]) => from === 'Node')
/** Of what the line carries, between two tabs at 100 Mbit/s and 50 ms. */
const REACH = 0.6
/** Connections that may be made in a row, failed tries included. */
const CONNECTIONS = 32
/**
 * ms in which a link finds its rate, and in which it opens further connections where packets get lost; in which it is
 * measured; and in which nothing more comes when it has run dry.
 */
const RISE_MS = 2000
const LOSSY_RISE_MS = 16_000
const COUNTED_MS = 4000
const DRY_MS = 400
/** bare packets need no time to find their rate */
const BARE_RISE_MS = 500
const BARE_COUNTED_MS = 1000

const PROGRAM = fileURLToPath(new URL('lines/end-process.ts', import.meta.url))
const TYPESCRIPT = fileURLToPath(new URL('../../bin/typescript.mjs', import.meta.url))
const PAGE = new URL('pages/line-end.ts', import.meta.url)

interface LinkCase {
  readonly line: HomeLine
  readonly pair: readonly [EndKind, EndKind]
  /** nothing is sent for so long before what is measured; 0: it is the first */
  readonly restMs: number
}

/** An end, wherever it runs. */
interface OrderedEnd {
  call(name: string, argument?: unknown): Promise<unknown>
  close(): Promise<void>
}

export async function linksSuite(options: SuiteOptions): Promise<BenchRow[]> {
  const cases: readonly LinkCase[] = [
    ...LINES.flatMap((line) => PAIRS.map((pair) => ({ line, pair, restMs: 0 }))),
    ...RESTING_LINES.flatMap((line) => RESTING_PAIRS.map((pair) => ({ line, pair, restMs: REST_MS }))),
  ]
  const rows: BenchRow[] = []
  for (const measured of cases) if (isWanted(options, nameOf(measured))) rows.push(await rowOf(measured, options))
  return rows
}

function nameOf({ line: { megabits, latencyMs, loss }, pair: [from, to], restMs }: LinkCase): string {
  const lossy = loss === 0 ? '' : `, ${100 * loss} % lost`
  const rested = restMs === 0 ? '' : `, after a rest of ${restMs / 1000} s`
  return `link ${from} to ${to}, ${megabits} Mbit/s, ${latencyMs} ms${lossy}${rested}`
}

async function rowOf(measured: LinkCase, options: SuiteOptions): Promise<BenchRow> {
  const { line, pair } = measured
  const name = nameOf(measured)
  options.log(name)
  const undo: (() => unknown)[] = []
  try {
    const path = await ShapedPath.open(line, CONNECTIONS)
    undo.push(() => path.close())
    const bare = [await startProcess(), await startProcess()] as const
    undo.push(...bare.map((end) => () => end.close()))
    const ends = await startPair(pair)
    undo.push(...new Set(ends.map(({ close }) => close)))
    undo.push(await connect(path, ends))
    const isAim = name === 'link Chromium to Chromium, 100 Mbit/s, 50 ms'
    const row = await race(
      { name, adapter: 'WebRTC', unit: 'MB/s', ...(isAim ? { reach: { peer: 'udp', ratio: REACH } } : {}) },
      linkRate(ends, measured),
      { udp: await bareRate(path, bare) },
      options.rounds,
    )
    return { ...row, counts: path.counts }
  } finally {
    for (const step of undo.reverse()) await step()
  }
}

export async function startPair([from, to]: readonly [EndKind, EndKind]): Promise<readonly [OrderedEnd, OrderedEnd]> {
  if (from === 'Node' && to === 'Node') return [await startProcess(), await startProcess()]
  const tabs = await openPages({ modules: { page: PAGE }, gpu: false }, from === to ? 2 : 1)
  const [first, second] = tabs.pages.map(({ call }): OrderedEnd => ({ call, close: tabs.close }))
  const one = first ?? (await startProcess())
  const other = second ?? (await startProcess())
  return from === 'Chromium' ? [one, other] : [other, one]
}

/** Introduces them to each other over the path. Returns what ends the introductions. */
export async function connect(path: ShapedPath, [from, to]: readonly [OrderedEnd, OrderedEnd]): Promise<() => void> {
  const signalling = await startLocalSignalling(reroute((connection, side) => path.face(connection, side)))
  const [near, far] = [newMemberId(), newMemberId()]
  await from.call('join', signalling.access(near))
  await to.call('join', signalling.access(far))
  await to.call('expect', near)
  await from.call('dial', far)
  return () => signalling.stop()
}

function linkRate([from, to]: readonly [OrderedEnd, OrderedEnd], { line, restMs }: LinkCase): Contender {
  const arrived = async () => (await to.call('arrived')) as Arrived
  const push = async (countedMs: number): Promise<number> => {
    await from.call('push')
    await delay(line.loss === 0 ? RISE_MS : LOSSY_RISE_MS)
    const rate = await rateOf(arrived, countedMs)
    await from.call('halt')
    await dry(arrived)
    return rate
  }
  return async () => {
    if (restMs === 0) return push(COUNTED_MS)
    await push(1)
    await delay(restMs)
    return push(COUNTED_MS)
  }
}

async function bareRate(path: ShapedPath, [from, to]: readonly [OrderedEnd, OrderedEnd]): Promise<Contender> {
  // The last connection: those before are for tries to open the link.
  const [face, back] = [path.face(CONNECTIONS - 1, 'b'), path.face(CONNECTIONS - 1, 'a')]
  await to.call('bareGreet', back)
  await from.call('bareGreet', face)
  const arrived = async () => (await to.call('bareArrived')) as Arrived
  return async () => {
    await from.call('barePush', { to: face, megabits: path.line.megabits } satisfies BarePush)
    await delay(BARE_RISE_MS + path.line.latencyMs)
    const rate = await rateOf(arrived, BARE_COUNTED_MS)
    await from.call('bareHalt')
    await dry(arrived)
    return rate
  }
}

/** MB/s, by the clock of the end that counts. */
async function rateOf(arrived: () => Promise<Arrived>, ms: number): Promise<number> {
  const before = await arrived()
  await delay(ms)
  const after = await arrived()
  return (after.bytes - before.bytes) / 1000 / (after.at - before.at)
}

async function dry(arrived: () => Promise<Arrived>): Promise<void> {
  for (let before = -1, { bytes } = await arrived(); bytes !== before; { bytes } = await arrived()) {
    before = bytes
    await delay(DRY_MS)
  }
}

async function startProcess(): Promise<OrderedEnd> {
  const child = fork(TYPESCRIPT, [PROGRAM])
  await once(child, 'spawn')
  return {
    call: (name, argument) => ask(child, { name, argument }),
    close: async () => {
      const exited = once(child, 'exit')
      child.kill()
      await exited
    },
  }
}

async function ask(child: ChildProcess, order: LineOrder): Promise<unknown> {
  child.send(order)
  const [answer] = (await once(child, 'message')) as [LineAnswer]
  if ('error' in answer) throw new Error(answer.error)
  return answer.value
}
