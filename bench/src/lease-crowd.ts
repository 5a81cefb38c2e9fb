// A process of volunteers that lease and push (lease-holder.ts), on addresses of their own. Takes one order a line and
// answers each with one line: the load must not share a thread with who measures it, nor with the coordinator.
import { Agent } from 'node:http'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import type { BlockId } from '@starling-grid/protocol'
import { LeaseHolder, type Pushed } from './lease-holder.ts'

/** of one address: below what a coordinator lets in (net/sessions.ts) */
const PER_ADDRESS = 200
/** ms between groups of PER_JOIN volunteers that join */
const JOIN_MS = 100
const PER_JOIN = 50
/** 127.0.0.1 stays with the coordinator */
const FIRST_ADDRESS = 2

export type CrowdOrder =
  /** `from`: how many there are in processes before it */
  | { readonly type: 'join'; readonly url: string; readonly from: number; readonly count: number }
  | { readonly type: 'collect' }
  | { readonly type: 'finish' }

/** Since the last one. */
export interface CrowdLoad {
  /** ms of every lease */
  readonly leases: readonly number[]
  readonly pushed: number
  /** pushes by the code of their refusal */
  readonly refused: Readonly<Record<string, number>>
}

/** Blocks of all pushes that were taken, each with its version. */
export interface CrowdHistory {
  readonly taken: readonly (readonly [block: BlockId, version: number])[]
}

class CrowdProcess {
  readonly #holders: LeaseHolder[] = []
  readonly #taken: [BlockId, number][] = []
  #lost: string | undefined
  #onLost: (why: Error) => void = () => undefined
  #leases: number[] = []
  #pushed = 0
  #refused: Record<string, number> = {}
  #isLeaving = false

  async obey(order: CrowdOrder): Promise<object> {
    if (this.#lost !== undefined) throw new Error(this.#lost)
    switch (order.type) {
      case 'join':
        return this.#join(order)
      case 'collect':
        return this.#collect()
      case 'finish':
        return this.#finish()
      default:
        return order satisfies never
    }
  }

  async #join({ url, from, count }: Extract<CrowdOrder, { type: 'join' }>): Promise<object> {
    const agents = new Map<string, Agent>()
    for (let i = 0; i < count; i++) {
      if (i % PER_JOIN === 0) await delay(JOIN_MS)
      const localAddress = `127.0.0.${FIRST_ADDRESS + Math.floor((from + i) / PER_ADDRESS)}`
      const agent = agents.get(localAddress) ?? new Agent({ keepAlive: true })
      agents.set(localAddress, agent)
      this.#add({ url, localAddress, agent, name: `load-${from + i}` })
    }
    const lost = new Promise<never>((_, reject) => {
      this.#onLost = reject
    })
    await Promise.race([Promise.all(this.#holders.map(({ ready }) => ready)), lost])
    return {}
  }

  #add(own: {
    readonly url: string
    readonly name: string
    readonly localAddress: string
    readonly agent: Agent
  }): void {
    const holder = new LeaseHolder({
      ...own,
      onLease: (ms) => this.#leases.push(ms),
      onPushed: (pushed) => this.#onPushed(pushed),
    })
    void holder.closed.then((why) => {
      if (this.#isLeaving) return
      this.#lost ??= `expected ${own.name} to stay connected, got: ${why}`
      this.#onLost(new Error(this.#lost))
    })
    this.#holders.push(holder)
  }

  #onPushed({ blocks, version, code }: Pushed): void {
    this.#pushed++
    if (version === undefined) this.#refused[code] = (this.#refused[code] ?? 0) + 1
    else for (const block of blocks) this.#taken.push([block, version])
  }

  async #collect(): Promise<CrowdLoad> {
    const load = { leases: this.#leases, pushed: this.#pushed, refused: this.#refused }
    this.#leases = []
    this.#pushed = 0
    this.#refused = {}
    return load
  }

  async #finish(): Promise<CrowdHistory> {
    await Promise.all(this.#holders.map((holder) => holder.rest()))
    this.#isLeaving = true
    for (const holder of this.#holders) holder.close()
    return { taken: this.#taken }
  }
}

const crowd = new CrowdProcess()
for await (const line of createInterface({ input: process.stdin })) {
  const answer = await crowd.obey(JSON.parse(line) as CrowdOrder).catch((error: unknown) => ({ error: String(error) }))
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
process.exit()
