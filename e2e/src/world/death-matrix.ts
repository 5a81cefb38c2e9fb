// The death matrix: one member killed at one point of a step or of a ballot. Every size, rank and point, around the
// ring and in a direct exchange. The rest of the world is as its seed has it, without any other fault.
import type { Exchange, MemberId } from '@starling-grid/protocol'
import { isSameMoment, type Moment } from './moments.ts'
import { calm, type GridScenario, type Play } from './scenario.ts'
import type { VolunteerProcess } from './volunteer-process.ts'
import { type GridOutcome, simulateGrid, type World } from './world.ts'

export interface Cell {
  readonly exchange: Exchange
  readonly size: number
  /** of the victim in the ring */
  readonly rank: number
  readonly point: Point
}

export interface Point {
  readonly name: string
  readonly moment: Moment
  /**
   * in a ballot, or before it: after another member died, whose successor is a newcomer with nothing; the newcomer
   * dies, or one of the others
   */
  readonly victim?: 'newcomer' | 'other'
}

export interface Death extends GridOutcome {
  /** how often a volunteer was killed: 1, or the cell tests nothing; of ballots 2 */
  readonly deaths: number
  /** the step that was under way */
  readonly step: number
}

/** The step in which members of a running ring die: not the first, not the last. */
const STEP = 3
const SHAPE = { epochs: 2, blocks: 12, batchBlocks: 4 }
/** In a ballot: a newcomer takes seconds to come, and the run must not be over before. */
const LONG_SHAPE = { epochs: 3, blocks: 16, batchBlocks: 4 }
const LONG_COMPUTE_MS = 4000
/** ms until another volunteer takes the place of one that died */
const RETURN_MS = 2000
/** Members that are slow are left out after a while, and then cannot die where they should. */
const NEVER_MS = 1e9

export function* deathMatrix(exchange: Exchange): Generator<Cell> {
  for (const size of [2, 3, 4])
    for (let rank = 0; rank < size; rank++)
      for (const point of pointsOf(exchange, size)) yield { exchange, size, rank, point }
}

function pointsOf(exchange: Exchange, size: number): Point[] {
  const hops = [...Array(exchange === 'ring' ? size - 1 : 1).keys()]
  return [
    { name: 'before it contributes', moment: { at: 'computed' } },
    { name: 'with its assignment on the way', moment: { at: 'sends', type: 'partial', hop: 0 } },
    ...hops.map((hop): Point => ({
      name: `at hop ${hop} of the reduce-scatter`,
      moment: { at: 'gets', type: 'partial', hop },
    })),
    ...hops.map((hop): Point => ({
      name: `at hop ${hop} of the all-gather`,
      moment: { at: 'gets', type: 'reduced', hop },
    })),
    ...hops.map((hop): Point => ({
      name: `at hop ${hop} of a manifest`,
      moment: { at: 'gets', type: 'manifest', hop },
    })),
    { name: 'with the step applied and nobody told', moment: { at: 'applied' } },
    { name: 'before HELD', moment: { at: 'says', what: 'held' } },
    { name: 'after HELD', moment: { at: 'said', what: 'held' } },
    { name: 'as it begins to fetch', moment: { at: 'sends', type: 'fetch', hop: 0 }, victim: 'newcomer' },
    { name: 'with the state adopted', moment: { at: 'adopted' }, victim: 'newcomer' },
    { name: 'before CONFIRM', moment: { at: 'says', what: 'confirm' }, victim: 'newcomer' },
    { name: 'after CONFIRM', moment: { at: 'said', what: 'confirm' }, victim: 'newcomer' },
    { name: 'as it is asked for its state', moment: { at: 'gets', type: 'fetch', hop: 0 }, victim: 'other' },
    { name: 'before it confirms what it held', moment: { at: 'says', what: 'confirm' }, victim: 'other' },
    { name: 'after it confirmed what it held', moment: { at: 'said', what: 'confirm' }, victim: 'other' },
  ]
}

export function nameOf({ exchange, size, rank, point }: Cell): string {
  return `${exchange} of ${size}, number ${rank} dies ${point.name}`
}

export async function runCell(cell: Cell, seed: number, isTold = false): Promise<Death> {
  const director = new Director(cell)
  const outcome = await simulateGrid(seed, { mode: 'ring', play: director }, isTold)
  return { ...outcome, deaths: director.deaths, step: director.step }
}

class Director implements Play {
  readonly #cell: Cell
  deaths = 0
  step = 0
  /** who was there when the first died in a cell about a ballot */
  #early: ReadonlySet<MemberId> | undefined

  constructor(cell: Cell) {
    this.#cell = cell
  }

  scenario(drawn: GridScenario): GridScenario {
    const { exchange, size, point } = this.#cell
    const isBallot = point.victim !== undefined
    return {
      ...calm(drawn),
      seats: size,
      computeMs: isBallot ? LONG_COMPUTE_MS : drawn.computeMs,
      timing: { ...drawn.timing, stallMs: NEVER_MS, contributeMs: NEVER_MS },
      shape: { ...drawn.shape, ...(isBallot ? LONG_SHAPE : SHAPE), exchange, volunteers: { min: size } },
    }
  }

  direct(world: World): void {
    world.onMoment = (volunteer, moment) => this.#look(world, volunteer, moment)
  }

  #look(world: World, volunteer: VolunteerProcess, moment: Moment): void {
    if (!volunteer.isAlive || volunteer.member === undefined) return
    const { point } = this.#cell
    const isPoint = isSameMoment(moment, point.moment)
    if (point.victim !== undefined && this.#early !== undefined) {
      const isVictim = this.#early.has(volunteer.member) === (point.victim === 'other')
      if (this.deaths === 1 && isPoint && isVictim) this.#kill(world, volunteer)
      return
    }
    this.#lookInRing(world, volunteer, moment)
  }

  #lookInRing(world: World, volunteer: VolunteerProcess, moment: Moment): void {
    if (volunteer.member === undefined) return
    const { point, rank, size } = this.#cell
    const isPoint = isSameMoment(moment, point.moment)
    const ring = world.observer.ringOf(volunteer)
    if (this.deaths > 0 || ring?.members.length !== size || ring.step < STEP) return
    const own = ring.members.indexOf(volunteer.member)
    if (point.victim === undefined && own === rank && isPoint) this.#kill(world, volunteer)
    // Another member dies first, so that a newcomer comes.
    if (point.victim === undefined || own !== (rank + 1) % size || !isSameMoment(moment, { at: 'said', what: 'held' }))
      return
    this.#early = new Set(ring.members)
    this.#kill(world, volunteer)
  }

  #kill(world: World, victim: VolunteerProcess): void {
    this.deaths++
    this.step = world.observer.ringOf(victim)?.step ?? this.step
    world.tell(() => `DEATH of ${victim.name}`)
    victim.kill()
    world.later(RETURN_MS, () => world.arriveInPlaceOf(victim))
  }
}
