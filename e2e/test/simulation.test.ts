// Commit and recovery (docs/RULES.md) under random faults: the same decisions, members and exchanges as in production,
// in a simulated world. STARLING_SEEDS raises the number of seeds.
import assert from 'node:assert/strict'
import { before, describe, test } from 'node:test'
import type { VersionRef } from '@starling-grid/protocol'
import { campaign, type Campaign } from '../src/simulation/campaign.ts'
import { type Counted, FAULTS } from '../src/simulation/counts.ts'
import { CALM, type Scenario } from '../src/simulation/scenario.ts'
import { explain, type Play, simulate } from '../src/simulation/simulate.ts'
import type { World } from '../src/simulation/world.ts'

/** All sockets break in the middle of a run, and stay away for half of T_lost: 30 s in production. */
class Outage implements Play {
  #world: World | undefined
  /** the newest version that two members held then, or the only one did (R5) */
  held: VersionRef | undefined

  scenario(drawn: Scenario): Scenario {
    return { ...drawn, ...CALM }
  }

  direct(world: World): void {
    this.#world = world
    const { agenda, dice, scenario } = world
    agenda.later(
      dice.between(3000, 12_000),
      () => 'the network is gone',
      () => {
        world.outage(scenario.config.timing.lostMs / 2)
        const versions = world.volunteers.flatMap(({ alive, core }) =>
          alive && core.version !== undefined ? [core.version] : [],
        )
        versions.sort((a, b) => b.v - a.v)
        this.held = versions[1] ?? versions[0]
      },
    )
  }

  get keptWhatWasHeld(): boolean {
    return (
      this.#world !== undefined &&
      this.held !== undefined &&
      this.#world.history.descends(this.#world.chronicle.head, this.held)
    )
  }
}

const SEEDS = Number(process.env['STARLING_SEEDS'] ?? 1000)
const OFF_RING_SEEDS = 40

describe(`${SEEDS} simulated runs under faults`, () => {
  let all: Campaign
  before(() => {
    all = campaign(1, SEEDS)
  })

  test('break no invariant and all finish', (context) => {
    const { faults, ...states } = all.counts
    for (const [what, counts] of Object.entries({ states, faults }))
      context.diagnostic(
        `${what}: ${Object.entries(counts)
          .map(([name, count]) => `${name} ${count}`)
          .join(', ')}`,
      )
    const [first] = all.failures
    assert.equal(first, undefined, first === undefined ? '' : explain(first))
  })

  for (const fault of FAULTS) test(`meet the fault ${fault}`, () => assert.ok(all.counts.faults[fault] > 0))

  const rare: Record<string, Counted> = {
    'go back to a checkpoint': 'rewinds',
    'wait for the last holder of a version, who comes back': 'lateReturns',
    'take a rewind back when a holder returns after it': 'undoneRewinds',
    'answer a ballot again': 'equalBallots',
    'catch up by one reduced gradient': 'catchUps',
    'fetch whole states from members': 'stateFetches',
    'fetch whole states from the coordinator': 'coordinatorFetches',
    'train in local rounds': 'rounds',
    'change between steps and local rounds by their cost': 'localChanges',
    'fall back to the parameter server': 'ringToAsync',
    'return to the ring': 'asyncToRing',
    'restart a coordinator whose parameter server is gone': 'serverRestarts',
    'refuse late and repeated pushes': 'pushesRefused',
    'set a block aside that always fails': 'quarantines',
    'stop a coordinator that was replaced': 'fencedAppends',
    'give leases back whose blocks cannot be had': 'gaveBack',
    'report files that cannot be read': 'unreadable',
    'get blocks back when their file is whole again': 'restorations',
    'exchange gradients in a direct': 'directSteps',
    'relay a link that does not work': 'relayedFrames',
    'move blocks from members that are behind to others': 'movedBlocks',
    'keep what inner steps of a round learned from when it is tried again': 'resumedBlocks',
    'let newcomers fetch a version while the ring runs': 'prefetches',
    'let newcomers follow the steps since': 'followedSteps',
    'send a bucket of a gradient before the rest is computed, and lose it to a ballot': 'voidBuckets',
    'wait for a disk that is slow or fails': 'slowAppends',
    'lose what was decided and not yet durable': 'lostDecisions',
    'lose answers whose requests arrived': 'lostAnswers',
    'come back with a state that was kept': 'warmStarts',
    'bring steps back whose rows a restored journal lost': 'restoredSteps',
    'carry their plan out while the coordinator is away': 'plansExhausted',
  }
  for (const [what, count] of Object.entries(rare)) test(what, () => assert.ok(all.counts[count] > 0))
})

test('members that cannot be in the ring are its off-ring members: what they computed is in it once (A1)', () => {
  const offRing = campaign(1, OFF_RING_SEEDS, { offRing: true })
  const [first] = offRing.failures
  assert.equal(first, undefined, first === undefined ? '' : explain(first, { offRing: true }))
  assert.ok(offRing.counts.offRingBlocks > 0)
})

test('without any socket for half the time of R6, members lose no step that two hold, and nothing is rewound', () => {
  let held = 0
  for (let seed = 1; seed <= 40; seed++) {
    const outage = new Outage()
    const outcome = simulate(seed, { mode: 'ring', play: outage })
    assert.equal(outcome.violation, undefined, `seed ${seed}: ${outcome.violation?.text}`)
    assert.equal(outcome.counts.rewinds, 0, `seed ${seed} went back`)
    if (outage.held === undefined) continue // the run was over before
    held++
    assert.ok(outage.keptWhatWasHeld, `seed ${seed}: a step that was held when the sockets broke is not in the history`)
  }
  assert.ok(held > 20, `in ${held} runs somebody held a step then`)
})

test('the same seed gives the same run', () => {
  const [one, other] = [simulate(7), simulate(7)]
  assert.deepEqual(one.counts, other.counts)
  assert.equal(one.events, other.events)
})
