// How much of the exchange a step waits for: (step with the ring − step that only computes) ÷ exchange alone. Compares
// buckets that enter the ring while backward runs with the whole gradient after it. Two members in processes of their
// own exchange over WebRTC, on links as slow as those of homes. First their computing only takes time, then it runs on
// an adapter.
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { startLocalGroup } from '@starling-grid/client-node'
import { parameterCount } from '@starling-grid/model'
import { LINK_BYTES_PER_MS, MODEL, type OverlapAnswer, type OverlapOrder, type StepWay, TIMED } from './overlap-task.ts'
import { type BenchRow, median, rounded } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const MEMBER = fileURLToPath(new URL('overlap-rank.ts', import.meta.url))
const WAYS: readonly StepWay[] = ['compute', 'exchange', 'whole', 'overlap']
/** % of the exchange that a step may wait for */
const WANTED = 15
/** %: what is less than nothing is noise */
const LEAST = 0.1
const NAME = `exchange of ${(4e-6 * parameterCount(MODEL)).toFixed(1)} MB over ${LINK_BYTES_PER_MS / 1000} MB/s`

type Times = Readonly<Record<StepWay, number>>

export async function overlapSuite({ adapter, rounds, log }: SuiteOptions): Promise<BenchRow[]> {
  const timed = await measure([TIMED], { rounds, log })
  return [...timed, ...(await measure(adapter === undefined ? [] : [adapter], { rounds, log }))]
}

async function measure(
  args: readonly string[],
  { rounds, log }: Pick<SuiteOptions, 'rounds' | 'log'>,
): Promise<BenchRow[]> {
  const { processes, ended } = await startLocalGroup({ size: 2, file: MEMBER, args })
  await Promise.all(processes.map((child) => once(child, 'message'))) // linked
  const pair = new Pair(processes)
  await pair.round() // warm-up: compile, cache
  const times: Times[] = []
  for (let round = 0; round < rounds; round++) {
    times.push(await pair.round())
    log(WAYS.map((way) => `${way} ${times.at(-1)?.[way].toFixed(0)} ms`).join(', '))
  }
  for (const child of processes) child.send({ type: 'leave' } satisfies OverlapOrder)
  await ended
  return rowsOf(times, pair.adapter)
}

class Pair {
  readonly #processes: readonly ChildProcess[]
  #generation = 0
  adapter = ''

  constructor(processes: readonly ChildProcess[]) {
    this.#processes = processes
  }

  /** One step of each way, one after the other. */
  async round(): Promise<Times> {
    const times: Record<StepWay, number> = { compute: 0, exchange: 0, whole: 0, overlap: 0 }
    for (const way of WAYS) times[way] = await this.#step(way)
    return times
  }

  /** ms until the slower member is done */
  async #step(way: StepWay): Promise<number> {
    const generation = ++this.#generation
    await this.#order({ type: 'prepare', generation, way })
    const answers = await this.#order({ type: 'go', generation, way })
    if (way !== 'compute' && new Set(answers.map(({ digest }) => digest)).size !== 1)
      throw new Error(`the members' sums differ: ${way}`)
    this.adapter = answers[0]?.adapter ?? ''
    return Math.max(...answers.map(({ ms }) => ms))
  }

  #order(order: OverlapOrder): Promise<OverlapAnswer[]> {
    return Promise.all(
      this.#processes.map(async (child) => {
        child.send(order)
        const [answer] = (await once(child, 'message')) as [
          { readonly value: OverlapAnswer } | { readonly error: string },
        ]
        if ('error' in answer) throw new Error(answer.error)
        return answer.value
      }),
    )
  }
}

function rowsOf(times: readonly Times[], adapter: string): BenchRow[] {
  const exposed = (way: StepWay) =>
    times.map((time) => Math.max(LEAST, (100 * (time[way] - time.compute)) / time.exchange))
  const all = (way: StepWay) => times.map((time) => time[way])
  return [
    {
      ...row(`exposed ${NAME}`, adapter, '%', {
        ours: exposed('overlap'),
        peers: { 'without overlap': exposed('whole'), 'the exchange': [100] },
      }),
      reach: { peer: 'the exchange', ratio: rounded(100 / WANTED) },
    },
    row(`step with ${NAME}`, adapter, 'ms', {
      ours: all('overlap'),
      peers: { 'without overlap': all('whole'), 'computing only': all('compute'), 'exchange only': all('exchange') },
    }),
  ]
}

function row(
  name: string,
  adapter: string,
  unit: string,
  { ours, peers }: { readonly ours: readonly number[]; readonly peers: Readonly<Record<string, readonly number[]>> },
): BenchRow {
  const own = median(ours)
  const of = (value: (values: readonly number[]) => number): Record<string, number> =>
    Object.fromEntries(Object.entries(peers).map(([peer, values]) => [peer, rounded(value(values))]))
  return {
    name,
    adapter,
    unit,
    better: 'less',
    ours: rounded(own),
    min: rounded(Math.min(...ours)),
    max: rounded(Math.max(...ours)),
    peers: of(median),
    ratio: of((values) => median(values) / own),
    spread: Object.fromEntries(
      Object.entries(peers).map(([peer, values]) => [
        peer,
        [rounded(Math.min(...values)), rounded(Math.max(...values))] as const,
      ]),
    ),
  }
}
