// Volunteers that take every place of a job and do nothing there, in simulated grids of what ships. Those that come
// later get the places.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { JobSpec } from '@starling-grid/protocol'
import { explain } from '../src/world/campaign.ts'
import { calm, type GridScenario, type Play } from '../src/world/scenario.ts'
import { simulateGrid, type World } from '../src/world/world.ts'

const SEEDS = 3
/** Places of the job, all of them taken before the volunteers come that work. */
const PLACES = 2
/** ms after the beginning at which these come */
const COME_MS = 20_000

class TakenPlaces implements Play {
  readonly #mode: NonNullable<JobSpec['mode']>

  constructor(mode: NonNullable<JobSpec['mode']>) {
    this.#mode = mode
  }

  scenario(drawn: GridScenario): GridScenario {
    const volunteers = { min: PLACES, max: PLACES }
    return { ...calm(drawn), seats: 0, shape: { ...drawn.shape, mode: this.#mode, exchange: 'ring', volunteers } }
  }

  direct(world: World): void {
    world.later(1, () => {
      for (let seat = 0; seat < PLACES; seat++) world.arrive(seat, 'mute')
    })
    world.later(COME_MS, () => {
      for (let seat = 0; seat < PLACES; seat++) world.arrive(PLACES + seat)
    })
  }
}

for (const mode of ['async', 'ring'] as const)
  test(`threat 44: mute volunteers in all places of a job in mode ${mode} cost minutes, not the job`, async () => {
    for (let seed = 1; seed <= SEEDS; seed++) {
      const options = { mode, play: new TakenPlaces(mode) }
      const outcome = await simulateGrid(seed, options)
      if (outcome.violation !== undefined) assert.fail(await explain(outcome, options))
      assert.ok(outcome.records.length > 0)
    }
  })
