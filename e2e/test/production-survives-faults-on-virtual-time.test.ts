// What ships, not a model of it: production's coordinators and volunteers on virtual time, under faults
// (docs/RULES.md). STARLING_SEEDS changes the number of seeds.
import assert from 'node:assert/strict'
import { before, describe, test } from 'node:test'
import { campaign, type Campaign, explain } from '../src/world/campaign.ts'
import { addCounts, type Counted, noCounts } from '../src/world/counts.ts'
import { FAULTS } from '../src/world/faults/faults.ts'
import { simulateGrid } from '../src/world/world.ts'

/** about a minute of two cores */
const SEEDS = Number(process.env['STARLING_SEEDS'] ?? 1000)
/** Seeds of which some reach what few do. */
const MANY_SEEDS = 1000

/** In processes of its own, so it begins before the tests that compute in this one. */
const running = campaign({ first: 1, seeds: SEEDS })
running.catch(() => undefined) // the tests of it say so

test('threat 43: two liars of three pass no false state, whatever is late', async () => {
  const total = noCounts()
  const members = { encoding: 'f32', linkless: false } as const // the ledger knows what such states hold
  for (let seed = 1; seed <= 10; seed++) {
    const mode = seed % 3 === 0 ? 'auto' : 'ring'
    const options = { mode, members, faults: 0, accomplices: 2 } as const
    const outcome = await simulateGrid(seed, options)
    if (outcome.violation !== undefined) assert.fail(await explain(outcome, options))
    addCounts(total, outcome.counts)
  }
  assert.ok(total.derivedStates >= 10, `${total.derivedStates} states were derived`)
})

test('members of groups pass versions on, and what one passes on falsely is not believed', async () => {
  const total = noCounts()
  const options = { mode: 'async', members: { grouped: true }, defect: 'false-chunks' } as const
  for (let seed = 1; seed <= 20; seed++) {
    const outcome = await simulateGrid(seed, options)
    if (outcome.violation !== undefined) assert.fail(await explain(outcome, options))
    addCounts(total, outcome.counts)
  }
  assert.ok(total.sharedVersions >= 20, `${total.sharedVersions} versions were to come from members`)
  assert.ok(total.falseChunks >= 5, `${total.falseChunks} chunks were false`)
})

// Seed 3 trains in local rounds, whose part of a volunteer is read from the disk once: no event may wait for it.
test('a seed gives the same journal, row for row, every time', async () => {
  for (const seed of [1, 2, 3, 17]) {
    const [one, again] = [await simulateGrid(seed), await simulateGrid(seed)]
    assert.deepEqual(again.fingerprint, one.fingerprint, `seed ${seed}`)
    assert.equal(again.events, one.events, `seed ${seed}`)
  }
})

describe(`${SEEDS} simulated grids under faults`, () => {
  let all: Campaign
  before(async () => {
    all = await running
  })

  test('break no invariant, and train every block once in every epoch', async (context) => {
    const { counts, faults, events, longestMs } = all
    const rows = [...Object.entries(counts), ...faults].map(([name, count]) => `${name} ${count}`)
    context.diagnostic(`${events} events, ${(longestMs / 1000).toFixed(0)} s at most: ${rows.join(', ')}`)
    const [first] = all.failures
    assert.equal(first, undefined, first === undefined ? '' : await explain(first))
  })

  for (const fault of FAULTS) test(`meet the fault ${fault}`, () => assert.ok((all.faults.get(fault) ?? 0) > 0))

  const rare: Record<string, Counted> = {
    'open ballots': 'ballots',
    'go back to a checkpoint': 'rewinds',
    'wait for the last holder of a version, who comes back': 'lateReturns',
    'answer a ballot again': 'equalBallots',
    'write checkpoints': 'checkpoints',
    'measure versions': 'validations',
    'catch up by one reduced gradient': 'catchUps',
    'take over whole states': 'stateFetches',
    'fetch whole states from the coordinator': 'coordinatorFetches',
    'fall back to the parameter server': 'ringToAsync',
    'restart a coordinator whose parameter server is gone': 'serverRestarts',
    'take pushes': 'pushesTaken',
    'refuse late and repeated pushes': 'pushesRefused',
    'set a block aside that always fails': 'quarantines',
    'give leases back whose blocks cannot be had': 'gaveBack',
    'report files that cannot be read': 'unreadable',
    'stop a coordinator that was replaced': 'fencedAppends',
    'wait for a disk that fails': 'slowAppends',
    'lose what was decided and not yet durable': 'lostDecisions',
    'lose answers whose requests arrived': 'lostAnswers',
    'move blocks from members that are behind to others': 'movedBlocks',
    'let newcomers fetch a version while the ring runs': 'prefetches',
    'let newcomers prove what they hold': 'proofs',
    'come back with a state that was kept': 'warmStarts',
    'carry their plan out while the coordinator is away': 'plansExhausted',
    'go on to another job and back': 'jobs',
    'append data to the dataset of a job that trains': 'appends',
    'let the batch follow the ring': 'scaledSteps',
    'fetch versions of groups from members': 'sharedVersions',
  }
  const rarer: Record<string, Counted> = {
    'take a rewind back when a holder returns after it': 'undoneRewinds',
    'go on from an older checkpoint when one is damaged': 'damagedCheckpoints',
    'bring steps back whose rows a restored journal lost': 'restoredSteps',
    'get blocks back when their file is whole again': 'restorations',
    'return to the ring': 'asyncToRing',
  }
  const reached = { ...rare, ...(SEEDS < MANY_SEEDS ? {} : rarer) }
  for (const [what, count] of Object.entries(reached)) test(what, () => assert.ok(all.counts[count] > 0))
})
