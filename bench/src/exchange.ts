// A step's exchange around the ring and in a direct exchange, among members of this process. Their lines are as slow
// and as long as those of homes. Shows what latency costs either way, against the formulas that the coordinator chooses
// by (run/policy/exchange-choice.ts).
import { exchangeTimes } from '@starling-grid/coordinator/run'
import { type Exchange, type Manifest, memberId, type MemberId, systemClock } from '@starling-grid/protocol'
import { type Addressed, LinkSet, MemoryGrid, slowNetwork, StepReduces } from '@starling-grid/volunteer/testing'
import { type BenchRow, race, rounded } from './row.ts'
import type { SuiteOptions } from './suite.ts'

/** 20 Mbit/s up and 20 ms one way: the profile `homes` of docs/SCALING.md. */
const LINE = { bytesPerMs: 2500, latencyMs: 20 }
const SIZES = [4, 8]
/** ResNet-20 and a bias: of each the latency is another part of a step. */
const FLOATS = [16_384, 262_144]
const MANIFEST: Manifest = { blocks: [], samples: 1, targets: 1, lossSum: 1, correct: 0 }

export async function exchangeSuite({ rounds, log }: Pick<SuiteOptions, 'rounds' | 'log'>): Promise<BenchRow[]> {
  const rows: BenchRow[] = []
  for (const size of SIZES) {
    const group = await LinkedGroup.open(size)
    try {
      for (const floats of FLOATS) {
        const predicted = exchangeTimes({ members: size, bytes: 4 * floats, ...LINE }, 0)
        log(
          `${size} members, ${floats} floats: predicted ${rounded(predicted.ring)} ms around the ring, ` +
            `${rounded(predicted.direct)} ms in a direct exchange with its part of opening links`,
        )
        const head = {
          name: `exchange ${rounded((4 * floats) / 1e6)} MB, ${size} members, 20 ms`,
          adapter: '2.5 MB/s up, in memory',
          unit: 'ms',
          better: 'less',
        } as const
        rows.push(
          await race(head, () => group.step('direct', floats), { ring: () => group.step('ring', floats) }, rounds),
        )
      }
    } finally {
      group.close()
    }
  }
  return rows
}

class LinkedGroup {
  readonly #ids: readonly MemberId[]
  readonly #links: readonly LinkSet[]
  #reduces: readonly StepReduces[] = []
  #generation = 0
  #closed = false

  static async open(size: number): Promise<LinkedGroup> {
    const group = new LinkedGroup(size)
    await group.#link()
    return group
  }

  private constructor(size: number) {
    const grid = new MemoryGrid()
    this.#ids = Array.from({ length: size }, (_, i) => memberId(`m${i}`))
    const noRelay = (): Promise<never> => Promise.reject(new Error('internal: no relay'))
    const fail = (_: unknown, __: unknown, error: Error): void => {
      if (!this.#closed) throw error
    }
    this.#links = this.#ids.map((id, i) => {
      const links: LinkSet = new LinkSet(
        slowNetwork(grid.join(id), LINE.bytesPerMs, LINE.latencyMs),
        noRelay,
        {
          onFrame: (from, frame) => this.#send(links, this.#reduces[i]?.accept(frame, this.#ids.indexOf(from))),
          onLost: fail,
        },
        { clock: systemClock },
      )
      return links
    })
  }

  async #link(): Promise<void> {
    const pairs = this.#ids.flatMap((_, a) =>
      this.#ids.flatMap((id, b) => (a < b ? [this.#links[a]?.ensure(id, 'dial', AbortSignal.timeout(30_000))] : [])),
    )
    await Promise.all(pairs)
  }

  /** ms from the first contribution to the last whole sum. */
  async step(exchange: Exchange, floats: number): Promise<number> {
    const generation = ++this.#generation
    const gradients = this.#ids.map((_, i) => new Float32Array(floats).fill(i + 1))
    const shape = { generation, size: this.#ids.length, length: floats, exchange }
    this.#reduces = this.#ids.map((_, rank) => new StepReduces({ ...shape, rank }, 1))
    const begin = performance.now()
    const sums = this.#reduces.map((reduces) => reduces.reduced())
    for (const [i, links] of this.#links.entries())
      this.#send(links, this.#reduces[i]?.contribute(1, gradients[i] ?? new Float32Array(floats), MANIFEST))
    const [first] = await Promise.all(sums)
    const ms = performance.now() - begin
    const expected = (this.#ids.length * (this.#ids.length + 1)) / 2
    if (first?.sum[0] !== expected || first.sum.at(-1) !== expected)
      throw new Error(`internal: the sum is ${first?.sum[0]}, not ${expected}`)
    return ms
  }

  #send(links: LinkSet, frames: readonly Addressed[] = []): void {
    for (const { to, frame } of frames) links.send(this.#ids[to] ?? memberId('absent'), frame)
  }

  close(): void {
    this.#closed = true
    for (const links of this.#links) links.close()
  }
}
