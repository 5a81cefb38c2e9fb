// Members that send any message at any time, well-formed and wrong. No decision throws, no block is committed twice,
// counters only rise, and the journal makes the same state again. STARLING_FUZZ multiplies the numbers of tries.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { replay, type RunMessage } from '@starling-grid/coordinator/run'
import {
  type BlockId,
  type Claim,
  memberId,
  type MemberId,
  random32,
  type StepRecord,
  trainingBlock,
  type VersionRef,
} from '@starling-grid/protocol'
import { Desk, hashOf, recordsAfter, versionAfter } from './run-desk.ts'

const RUNS = 400 * Number(process.env['STARLING_FUZZ'] ?? 1)
const EVENTS = 150
const NAMES = ['a', 'b', 'c', 'liar']

class Play {
  readonly desk: Desk
  readonly #random: () => number
  #highestBallot = 0

  constructor(seed: number) {
    this.#random = random32(seed)
    this.desk = new Desk({
      minVolunteers: 2,
      blocks: 300,
      mode: this.#pick(['ring', 'ring', 'auto', 'async'] as const),
      validationBlocks: this.#pick([0, 2]),
      seed,
    })
    for (const name of NAMES.slice(0, 3)) this.desk.join(name)
  }

  #pick<T>(items: readonly T[]): T {
    return items[this.#random() % items.length] as T
  }

  event(): void {
    const honest = this.#random() % (this.desk.phase === 'freeze' ? 2 : 8) > 0 // ballots are where lies count
    if (honest) this.#goOn()
    else this.#lie()
  }

  /** Something that brings the run on, or a change of members. */
  #goOn(): void {
    const { desk } = this
    const { phase, chain } = desk.state
    switch (this.#random() % 40) {
      case 0:
        return desk.join(this.#pick(NAMES))
      case 1:
        return desk.lose(this.#pick(NAMES))
      case 2:
        return void desk.wait(this.#pick([100, 2500, 70_000]))
      default:
        if (phase.type === 'freeze')
          for (const id of phase.expected) desk.answer(id, chain.head.v === 0 ? undefined : [])
        else if (phase.type === 'form') for (const id of phase.members) desk.confirm(id)
        else if (phase.type === 'ring') desk.step(chain.head.v + 1)
        else desk.wait(3000)
    }
  }

  #lie(): void {
    const { desk } = this
    const { fence, generation } = desk.state
    const message = {
      ...this.#message(),
      fence: this.#pick([fence, fence, fence, fence - 1, fence + 1]),
      generation: this.#pick([
        generation,
        generation,
        generation,
        generation - 1,
        generation + 1,
        0,
        Number.MAX_SAFE_INTEGER,
      ]),
    }
    desk.feed({ type: 'message', member: this.#member(), message: message as RunMessage })
  }

  #message(): { readonly type: RunMessage['type'] } & Record<string, unknown> {
    const { modeEpoch } = this.desk.state
    const [step, round] = [this.#number(), this.#number()]
    if (this.desk.phase === 'freeze' && this.#random() % 2 === 0) return { type: 'state', claim: this.#claim() }
    return this.#pick<() => { readonly type: RunMessage['type'] } & Record<string, unknown>>([
      () => ({ type: 'state', claim: this.#claim() }),
      () => ({ type: 'state', claim: this.#claim() }),
      () => ({ type: 'held', record: this.#record() }),
      () => ({ type: 'held', record: this.#record() }),
      () => ({ type: 'confirm', version: this.#version(), digest: hashOf(this.#pick(['right', 'wrong'])) }),
      () => ({
        type: 'abort',
        step,
        blamed: this.#pick([null, this.#member()]),
        why: this.#pick(['unopened', 'closed', 'silent', 'refused', 'stalled', 'own']),
        links: [this.#member(), this.#member()],
        code: 'link-lost',
        message: 'x',
      }),
      () => ({ type: 'link-restored', peer: this.#member() }),
      () => ({ type: 'version-digest', version: this.#version(), digest: hashOf('right') }),
      () => ({
        type: 'validated',
        version: this.#version(),
        lease: { block: this.#pick(['v:0', 'v:1', 'v:99', '0:1'] as BlockId[]), leaseEpoch: this.#number() },
        samples: 1,
        targets: 1,
        correct: 1,
        lossSum: 1,
        tally: this.#pick([
          { of: 'tokens' },
          { of: 'classes', top: this.#number() },
          { of: 'values', errors: -1, totals: [1, 2], squares: [3] },
          { of: 'labels', found: this.#number(), wrong: 0, missed: 1 },
        ]),
      }),
      () => ({ type: 'lease-request', modeEpoch: this.#pick([modeEpoch, modeEpoch + 1, 0]) }),
      () => ({ type: 'copied', version: this.#version() }),
      () => ({ type: 'prefetched', version: this.#pick([null, this.#version()]) }),
      () => ({ type: 'behind', step }),
      () => ({
        type: 'rebalance-progress',
        step,
        round,
        open: this.#pick([true, false]),
        left: this.#number(),
        blockMs: this.#number(),
      }),
      () => ({ type: 'rebalance-released', step, round, blocks: this.#blocks() }),
    ])()
  }

  #member(): MemberId {
    return memberId(this.#pick([...NAMES, 'nobody']))
  }

  #number(): number {
    return this.#pick([
      0,
      1,
      2,
      3,
      this.desk.state.chain.head.v,
      this.desk.state.chain.head.v + 1,
      1e6,
      Number.MAX_SAFE_INTEGER,
    ])
  }

  #blocks(): BlockId[] {
    const { head } = this.desk.state.chain
    return this.#pick([
      [],
      [trainingBlock(0, 0)],
      [trainingBlock(0, 0), trainingBlock(0, 0)],
      [trainingBlock(1, 5)],
      [trainingBlock(7, 0)],
      [trainingBlock(0, 999)],
      [...this.desk.planned(head.v + 1)],
      ['v:0' as BlockId],
    ])
  }

  #record(): StepRecord {
    const { head } = this.desk.state.chain
    return {
      ...this.desk.record(this.#pick([head.v + 1, head.v + 1, head.v + 2, this.#number()])),
      ...this.#pick([
        {},
        { blocks: this.#blocks() },
        { gradDigest: hashOf('other') },
        { generation: this.#number() },
        { samples: 1e9 },
        { kind: 'async' as const },
      ]),
    }
  }

  #version(): VersionRef {
    const { chain, config } = this.desk.state
    return this.#pick([
      chain.head,
      config.genesis,
      { v: chain.head.v, id: config.genesis.id },
      { v: this.#number(), id: chain.head.id },
    ])
  }

  #claim(): Claim | null {
    const { chain, config, generation } = this.desk.state
    const base = this.#pick([
      chain.head,
      chain.head,
      chain.head,
      chain.head,
      config.genesis,
      chain.at(Math.max(0, chain.head.v - 1)) ?? config.genesis,
      this.#version(),
    ])
    const records = recordsAfter(
      base,
      this.#pick([generation, generation, generation - 1, 1, 99]),
      this.#pick([0, 1, 1, 2, 7]),
      this.#blocks(),
    )
    return this.#pick([
      null,
      { base, records },
      { base, records },
      { base, records: [...records].reverse() },
      { base, records: [...chain.records] },
      { base: versionAfter(base, records), records },
    ])
  }

  check(): void {
    const { chain, generation, fence } = this.desk.state
    const blocks = chain.records.flatMap((record) => record.blocks)
    assert.equal(new Set(blocks).size, blocks.length, 'a block is committed twice')
    assert.ok(generation >= this.#highestBallot && fence >= 1, 'ballots only rise')
    this.#highestBallot = generation
  }
}

test(`${RUNS} runs with random messages of members commit no block twice, and the journal agrees`, (context) => {
  let commits = 0
  for (let seed = 1; seed <= RUNS; seed++) {
    const play = new Play(seed)
    for (let i = 0; i < EVENTS; i++) {
      try {
        play.event()
        play.check()
      } catch (error) {
        throw new Error(`seed ${seed}, event ${i}: ${error instanceof Error ? error.stack : String(error)}`, {
          cause: error,
        })
      }
    }
    const { desk } = play
    commits += desk.state.chain.head.v
    const again = replay(desk.state.config, desk.entries)
    assert.deepEqual(
      [again.chain.head, again.generation, again.fence, again.modeEpoch],
      [desk.state.chain.head, desk.state.generation, desk.state.fence, desk.state.modeEpoch],
      `seed ${seed}`,
    )
  }
  assert.ok(commits > RUNS, `${commits} steps were committed all the same`)
  context.diagnostic(`${commits} steps were committed all the same`)
})
