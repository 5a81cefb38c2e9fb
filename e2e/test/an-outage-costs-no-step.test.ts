// Members that lose the coordinator, and nothing else. What they hold stays in the history, they carry out the plan
// that they have, and nothing is rewound (R6, R14). In simulated grids of what ships.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type JobId, PLAN_WINDOW, type VersionRef } from '@starling-grid/protocol'
import { explain } from '../src/world/campaign.ts'
import { calm, type GridOptions, type GridScenario, type Play } from '../src/world/scenario.ts'
import type { VolunteerProcess } from '../src/world/volunteer-process.ts'
import { type GridOutcome, simulateGrid, type World } from '../src/world/world.ts'

const SEEDS = 10
/** ms after the beginning at which the network goes, at the earliest and at the latest */
const GOES_MS = [6000, 12_000] as const
/** ms without a coordinator: longer than any plan takes */
const AWAY_MS = 120_000

/** All sockets break in the middle of a run, and stay away for half of T_lost: 30 s in production. */
class Outage implements Play {
  #world: World | undefined
  /** the newest version that two members held then, or the only one did (R5) */
  held: VersionRef | undefined

  scenario(drawn: GridScenario): GridScenario {
    return calm(drawn)
  }

  direct(world: World): void {
    this.#world = world
    world.later(world.dice.between(...GOES_MS), () => {
      world.noNetworkUntil = world.time.now + world.scenario.timing.lostMs / 2
      const versions = world.volunteers.flatMap((volunteer) => heldBy(world, volunteer) ?? [])
      versions.sort((a, b) => b.v - a.v)
      this.held = versions[1] ?? versions[0]
      for (const volunteer of world.volunteers) volunteer.loseSocket()
    })
  }

  get keptWhatWasHeld(): boolean {
    const [run] = this.#world?.runs.values() ?? []
    return run !== undefined && this.held !== undefined && run.ledger.descends(run.chronicle.head, this.held)
  }
}

/** The coordinator dies in the middle of a plan, and another one comes when that is over. */
class LongAbsence implements Play {
  #world: World | undefined
  /** the newest version that is held when the next coordinator starts, and the committed one */
  reached = 0
  committed = 0
  begun = 0

  scenario(drawn: GridScenario): GridScenario {
    return { ...calm(drawn), seats: 3, shape: { ...drawn.shape, exchange: 'ring', volunteers: { min: 3 } } }
  }

  direct(world: World): void {
    this.#world = world
    world.onMoment = (_, { at }) => {
      if (at !== 'applied' || this.begun > 0 || this.#newest < 2) return
      this.begun = this.#newest
      world.killCoordinators()
      world.later(AWAY_MS, () => {
        this.reached = this.#newest
        this.committed = this.#head
        world.startCoordinator()
      })
    }
  }

  get #newest(): number {
    const world = this.#world
    return Math.max(0, ...(world?.volunteers.map((volunteer) => heldBy(world, volunteer)?.v ?? 0) ?? []))
  }

  get #head(): number {
    const [run] = this.#world?.runs.values() ?? []
    return run?.chronicle.head.v ?? 0
  }
}

function heldBy({ runs }: World, volunteer: VolunteerProcess): VersionRef | undefined {
  const [job] = runs.keys() as Iterable<JobId>
  return job === undefined ? undefined : volunteer.heldOf(job)
}

async function played(seed: number, options: GridOptions): Promise<GridOutcome> {
  const outcome = await simulateGrid(seed, options)
  if (outcome.violation !== undefined) assert.fail(await explain(outcome, options))
  assert.equal(outcome.counts.rewinds, 0, `seed ${seed} went back`)
  return outcome
}

test('without a socket for half the time of R6, members lose no step that two hold; nothing is rewound', async () => {
  let held = 0
  for (let seed = 1; seed <= SEEDS; seed++) {
    const play = new Outage()
    await played(seed, { mode: 'ring', play })
    if (play.held === undefined || play.held.v === 0) continue // the run was over before, or had not begun
    held++
    assert.ok(play.keptWhatWasHeld, `seed ${seed}: a step that was held when the sockets broke is not in the history`)
  }
  assert.ok(held > SEEDS / 3, `in ${held} runs a member held a step then`)
})

test('without a coordinator members carry their plan out, wait, and give none of it up (R14)', async () => {
  for (let seed = 1; seed <= 2; seed++) {
    const play = new LongAbsence()
    const { counts } = await played(seed, { mode: 'ring', long: true, play })
    assert.ok(play.reached > play.begun + 1, `seed ${seed}: from ${play.begun} on to ${play.reached}`)
    assert.ok(play.reached <= play.committed + PLAN_WINDOW, `seed ${seed}: at ${play.reached}, beyond the window`)
    assert.ok(counts.plansExhausted > 0)
  }
})
