// What a newcomer costs the members that train. A third process fetches a state from one member of a ring of two, again
// and again. Its step is compared with the step without a fetch.
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { setPriority } from 'node:os'
import { fileURLToPath } from 'node:url'
import { startLocalGroup } from '@starling-grid/client-node'
import { parameterCount } from '@starling-grid/model'
import { type NewcomerRingAnswer, type NewcomerRingOrder, STATE_BYTES } from './newcomer-ring-task.ts'
import { MODEL } from './overlap-task.ts'
import { type BenchRow, compared, median, type RowHead } from './row.ts'
import type { SuiteOptions } from './suite.ts'

const PROGRAM = fileURLToPath(new URL('newcomer-ring-rank.ts', import.meta.url))
/** Steps of one measurement: several fetches. */
const STEPS = 12
/**
 * A newcomer has a machine of its own wherever it matters: here its hashing must not take the cores of those who train.
 */
const NEWCOMER_NICENESS = 10
/** Times the step without a newcomer that one with it may take. */
const WANTED = 1.1

export async function newcomerRingRow({ rounds, log }: Pick<SuiteOptions, 'rounds' | 'log'>): Promise<BenchRow> {
  const { processes, ended } = await startLocalGroup({ size: 3, file: PROGRAM })
  await Promise.all(processes.map((child) => once(child, 'message'))) // linked
  const trial = new RingTrial(processes)
  const [alone, beside]: [number[], number[]] = [[], []]
  await trial.steps(true) // warm-up: links, compiled code
  for (let round = 0; round < rounds; round++) {
    alone.push(median(await trial.steps(false)))
    beside.push(median(await trial.steps(true)))
    log(
      `step ${alone.at(-1)?.toFixed(0)} ms, beside a newcomer ${beside.at(-1)?.toFixed(0)} ms; ` +
        `it gets ${trial.megabytesPerSecond.toFixed(1)} MB/s`,
    )
  }
  for (const child of processes) child.send({ type: 'leave' } satisfies NewcomerRingOrder)
  await ended
  const head: RowHead = {
    name:
      `step with an exchange of ${(4e-6 * parameterCount(MODEL)).toFixed(1)} MB while a newcomer fetches ` +
      `${STATE_BYTES / 1e6} MB from one of two`,
    adapter: 'WebRTC, computing that takes time only',
    unit: 'ms',
    better: 'less',
    reach: { peer: 'without a fetch', ratio: Number((1 / WANTED).toPrecision(4)) },
  }
  return compared(head, beside, { 'without a fetch': alone })
}

class RingTrial {
  readonly #members: readonly ChildProcess[]
  readonly #newcomer: ChildProcess
  #generation = 0
  #version = 0
  /** of the last fetches */
  megabytesPerSecond = 0

  constructor([first, second, newcomer]: readonly ChildProcess[]) {
    if (first === undefined || second === undefined || newcomer?.pid === undefined)
      throw new Error('internal: three processes are needed')
    this.#members = [first, second]
    this.#newcomer = newcomer
    setPriority(newcomer.pid, NEWCOMER_NICENESS)
  }

  /** ms of each step, of the slower member. */
  async steps(fetching: boolean): Promise<number[]> {
    const generation = ++this.#generation
    await this.#orderMembers({ type: 'prepare', generation })
    let training = true
    const fetches = fetching ? this.#fetchWhile(() => training) : undefined
    const [first = [], second = []] = await this.#orderMembers({ type: 'steps', generation, count: STEPS })
    training = false
    await fetches
    return first.map((ms, i) => Math.max(ms, second[i] ?? 0))
  }

  /** The last one ends after the steps: its end is not waited for by them. */
  async #fetchWhile(training: () => boolean): Promise<void> {
    const times: number[] = []
    while (training()) times.push(...(await order(this.#newcomer, { type: 'fetch', version: ++this.#version })))
    this.megabytesPerSecond = (1e-3 * STATE_BYTES) / median(times)
  }

  #orderMembers(what: NewcomerRingOrder): Promise<number[][]> {
    return Promise.all(this.#members.map((child) => order(child, what)))
  }
}

async function order(child: ChildProcess, what: NewcomerRingOrder): Promise<number[]> {
  child.send(what)
  const [answer] = (await once(child, 'message')) as [NewcomerRingAnswer]
  if ('error' in answer) throw new Error(answer.error)
  return [...answer.times]
}
