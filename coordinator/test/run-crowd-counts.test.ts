// What a run of groups counts as its members come and go, against a look at all of them: whose rounds are awaited, who
// waits for the open version, how fast all are, what rounds usually take, and which blocks are free.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { asyncPolicy, own, type RunState } from '@starling-grid/coordinator/run'
import { type BlockId, memberId, random32 } from '@starling-grid/protocol'
import { freeBlocks, isTaken } from '../src/run/async/accumulator.ts'
import { expected } from '../src/run/groups/group-rounds.ts'
import { available } from '../src/run/queue/scheduler.ts'
import { type Grant, push } from './async-desk.ts'
import { Desk } from './run-desk.ts'

const MEMBERS = 24
const STEPS = 4000
const USUAL = { gradient: 1, statistics: 1 }

class Story {
  readonly desk = new Desk({
    mode: 'async',
    minVolunteers: 1,
    blocks: 3000,
    epochs: 1000,
    batchBlocks: 2,
    async: asyncPolicy(undefined, 12, {}),
  })
  readonly grants = new Map<string, Grant>()
  readonly #words: () => number
  /** how often each deed was done */
  readonly done = new Map<string, number>()

  constructor(seed: number) {
    this.#words = random32(seed)
    this.#join('m0')
  }

  #below(bound: number): number {
    return this.#words() % bound
  }

  step(): void {
    this.desk.now += this.#below(3) === 0 ? this.#below(3000) : this.#below(50)
    const name = `m${this.#below(MEMBERS)}`
    const isHere = this.desk.state.members.has(memberId(name))
    if (!isHere) return this.#below(2) === 0 ? this.#join(name) : undefined
    const deed = this.#below(40)
    if (deed === 0) return this.#note('lose', () => this.desk.lose(name))
    if (deed === 1) return this.#giveBack(name)
    if (deed === 2) return this.#note('tick', () => this.desk.wait(this.#below(60_000)))
    if (deed === 3) return this.#speed(name)
    if (deed < 20) return this.#push(name, this.#below(6) === 0)
    return this.#note('ask', () => {
      this.desk.say(name, { type: 'lease-request', modeEpoch: this.desk.state.modeEpoch })
    })
  }

  #note(deed: string, act: () => unknown): void {
    act()
    this.done.set(deed, (this.done.get(deed) ?? 0) + 1)
    for (const { to, ...grant } of this.desk.sent('grant')) this.grants.set(to, grant as unknown as Grant)
  }

  #join(name: string): void {
    this.#note('join', () => {
      this.desk.join(name)
      own(this.desk.state, 'pushNorms').add(memberId(name), USUAL)
      this.grants.delete(name)
    })
    if (this.desk.phase !== 'async') this.desk.answer(name)
    this.#speed(name)
  }

  #speed(name: string): void {
    const samplesPerSecond = 0.05 + this.#below(1000) / 1000
    this.#note('speed', () => this.desk.feed({ type: 'speed', member: memberId(name), samplesPerSecond }))
  }

  #push(name: string, isCut: boolean): void {
    const grant = this.grants.get(name)
    if (grant === undefined) return
    const leases = isCut ? grant.leases.slice(0, 1) : grant.leases
    this.#note(isCut ? 'cut' : 'push', () => push(this.desk, name, { ...grant, leases }))
  }

  #giveBack(name: string): void {
    const leases = [...(this.grants.get(name)?.leases ?? [])].slice(this.#below(2))
    const message = { type: 'gave-back', leases, code: 'link-lost', message: 'no line' } as const
    this.#note('give back', () => this.desk.say(name, message))
  }
}

function awaitedOf({ members, leases, open, chain }: RunState): number {
  const ofHead = open.pushes.filter(({ base }) => base.v === chain.head.v)
  const pushed = new Set(ofHead.map(({ incarnation }) => incarnation))
  const others = [...members.values()].filter(({ id, granted, missedLeases }) => {
    const [first] = granted?.blocks ?? []
    const held = first === undefined ? undefined : leases.get(first)
    const isHeld = held !== undefined && held.leaseEpoch === granted?.leaseEpoch && held.base === chain.head.v
    return isHeld && missedLeases === 0 && !pushed.has(id)
  })
  return others.length + pushed.size
}

function assertCounted(state: RunState, most: number): void {
  const { open, members, chain, speeds } = state
  assert.equal(expected(state), awaitedOf(state))
  const fresh = open.pushes.filter(({ base }) => base.v === chain.head.v).map(({ incarnation }) => incarnation)
  assert.deepEqual(new Set(open.fresh), new Set(fresh))
  assert.equal(state.asked.size, [...members.values()].filter(({ awaitingLease }) => awaitingLease).length)
  const usual = open.pushes.map(({ incarnation }) => members.get(incarnation)?.pushMs ?? 0).sort((a, b) => a - b)
  assert.deepEqual([open.usualMs.size, open.usualMs.upperMedian()], [usual.length, usual[usual.length >> 1]])
  const all = [...members.values()].map(({ samplesPerSecond }) => samplesPerSecond).sort((a, b) => a - b)
  assert.equal(speeds.upperMedian(), all[all.length >> 1])
  assert.equal(
    speeds.sum,
    all.reduce((sum, one) => sum + one, 0),
  )
  const free: BlockId[] = available(state, (block) => isTaken(state, block), { max: most })
  assert.deepEqual(freeBlocks(state, most), free)
}

test('what is counted as members come, work and go is what a look at all of them finds', () => {
  for (const seed of [1, 2, 3]) {
    const story = new Story(seed)
    for (let step = 0; step < STEPS; step++) {
      story.step()
      assertCounted(story.desk.state, 1 + (step % 7) * 9)
    }
    const { chain } = story.desk.state
    assert.ok(chain.head.v > 50, `${chain.head.v} versions`)
    for (const deed of ['lose', 'give back', 'tick', 'cut', 'push', 'ask', 'join'])
      assert.ok((story.done.get(deed) ?? 0) > 10, `${deed}: ${story.done.get(deed)}`)
  }
})

test('most of the blocks of an epoch are leased, and what comes back is given out before what was never given', () => {
  const desk = new Desk({ mode: 'async', blocks: 4000, batchBlocks: 2, async: asyncPolicy(undefined, 12, {}) })
  const names = Array.from({ length: 40 }, (_, i) => `m${i}`)
  desk.join(...names)
  for (const name of names) {
    desk.answer(name)
    desk.feed({ type: 'speed', member: memberId(name), samplesPerSecond: 4 })
  }
  for (const name of names) desk.say(name, { type: 'lease-request', modeEpoch: desk.state.modeEpoch })
  const { granted } = desk.state.members.get(memberId('m3')) ?? {}
  assert.ok((granted?.blocks.length ?? 0) > 10)
  desk.lose('m3')
  assert.deepEqual(freeBlocks(desk.state, granted?.blocks.length ?? 0), granted?.blocks)
})
