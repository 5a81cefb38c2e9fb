// The death matrix: one member killed at one point of a step or of a ballot, for every size, place and point, around
// the ring and in a direct exchange. The rest of
// the world is as its seed has it, without any other fault.
import type { Exchange, MemberId } from '@starling-grid/protocol'
import type { Moment } from './context.ts'
import { CALM } from './scenario.ts'
import { type Outcome, type Play, simulate } from './simulate.ts'
import type { VolunteerProcess } from './volunteer-process.ts'
import type { World } from './world.ts'

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

export interface Death extends Outcome {
  /** how often a volunteer was killed: 1, or the cell tests nothing; of ballots 2 */
  readonly deaths: number
  /** the step that was under way */
  readonly step: number
}

/** The step in which members of a running ring die: not the first, not the last. */
const STEP = 3
const SHAPE = { epochs: 2, blocks: 12, batchBlocks: 4 }
/** In a ballot: a newcomer takes 8 s to come, and the run must not be over before. */
const LONG_SHAPE = { epochs: 3, blocks: 16, batchBlocks: 4 }
const SLOW_COMPUTE = { computeMs: 4000, transferMs: 1000 }

export function* deathMatrix(exchange: Exchange): Generator<Cell> {
  for (const size of [2, 3, 4])
    for (let rank = 0; rank < size; rank++)
      for (const point of pointsOf(exchange, size)) yield { exchange, size, rank, point }
}

function pointsOf(exchange: Exchange, size: number): Point[] {
  const hops = [...Array(exchange === 'ring' ? size - 1 : 1).keys()]
  return [
    { name: 'before it contributes', moment: { at: 'after', what: 'compute' } },
    { name: 'with its assignment on the way', moment: { at: 'after', what: 'contribute' } },
    ...hops.map((hop): Point => ({
      name: `at hop ${hop} of the reduce-scatter`,
      moment: { at: 'frame', type: 'partial', hop },
    })),
    ...hops.map((hop): Point => ({
      name: `at hop ${hop} of the all-gather`,
      moment: { at: 'frame', type: 'reduced', hop },
    })),
    ...hops.map((hop): Point => ({
      name: `at hop ${hop} of a manifest`,
      moment: { at: 'frame', type: 'manifest', hop },
    })),
    { name: 'with the step applied and nobody told', moment: { at: 'before', what: 'held' } },
    { name: 'after HELD', moment: { at: 'after', what: 'held' } },
    { name: 'as it begins to fetch', moment: { at: 'after', what: 'fetch-state' }, victim: 'newcomer' },
    { name: 'with the state adopted', moment: { at: 'after', what: 'adopt' }, victim: 'newcomer' },
    { name: 'before CONFIRM', moment: { at: 'before', what: 'confirm' }, victim: 'newcomer' },
    { name: 'after CONFIRM', moment: { at: 'after', what: 'confirm' }, victim: 'newcomer' },
    { name: 'as it is asked for its state', moment: { at: 'asked' }, victim: 'other' },
    { name: 'before it confirms what it held', moment: { at: 'before', what: 'confirm' }, victim: 'other' },
    { name: 'after it confirmed what it held', moment: { at: 'after', what: 'confirm' }, victim: 'other' },
  ]
}

export function nameOf({ exchange, size, rank, point }: Cell): string {
  return `${exchange} of ${size}, number ${rank} dies ${point.name}`
}

export function runCell(cell: Cell, seed: number, trace = false): Death {
  const director = new Director(cell)
  const outcome = simulate(seed, { mode: 'ring', play: director, trace })
  return { ...outcome, deaths: director.deaths, step: director.step }
}

/** Members that are slow are left out after a while, and then cannot die where they should. */
const QUICK = { computeMs: 500, transferMs: 1000, linksMs: 200 }
const NEVER_MS = 1e9

class Director implements Play {
  readonly #cell: Cell
  deaths = 0
  step = 0
  /** who was there when the first died in a cell about a ballot */
  #early: ReadonlySet<MemberId> | undefined

  constructor(cell: Cell) {
    this.#cell = cell
  }

  scenario(drawn: ReturnType<Play['scenario']>): ReturnType<Play['scenario']> {
    const { exchange, size, point } = this.#cell
    const [shape, pace] = point.victim === undefined ? [SHAPE, {}] : [LONG_SHAPE, SLOW_COMPUTE]
    return {
      ...drawn,
      ...CALM,
      ...QUICK,
      ...pace,
      seats: size,
      config: {
        ...drawn.config,
        ...shape,
        timing: { ...drawn.config.timing, stallMs: NEVER_MS, contributeMs: NEVER_MS },
        exchange: { asked: exchange, bytes: 0 },
        validationBlocks: 0,
        minVolunteers: size,
      },
    }
  }

  direct(world: World): void {
    world.onMoment = (member, moment) => this.#look(world, member, moment)
  }

  #look(world: World, member: VolunteerProcess, moment: Moment): void {
    const { point, rank, size } = this.#cell
    const { ring } = member.core
    const isPoint = isSame(moment, point.moment)
    if (point.victim !== undefined && this.#early !== undefined) {
      if (this.deaths === 1 && isPoint && this.#isVictim(member, this.#early)) this.#kill(world, member)
      return
    }
    if (this.deaths > 0 || ring?.members.length !== size || this.#stepOf(member) < STEP) return
    if (point.victim === undefined && ring.rank === rank && isPoint) this.#kill(world, member)
    // Another member dies first, so that a newcomer comes.
    if (point.victim !== undefined && ring.rank === (rank + 1) % size && isSame(moment, { at: 'after', what: 'held' }))
      this.#killFirst(world, member)
  }

  /** In a ballot members have other places than before: of the others anyone may be the victim. */
  #isVictim({ id }: VolunteerProcess, early: ReadonlySet<MemberId>): boolean {
    return early.has(id) === (this.#cell.point.victim === 'other')
  }

  #stepOf({ core }: VolunteerProcess): number {
    return core.ring?.flight?.step ?? core.version?.v ?? 0
  }

  #killFirst(world: World, member: VolunteerProcess): void {
    this.#early = new Set(member.core.ring?.members)
    this.#kill(world, member)
  }

  #kill(world: World, member: VolunteerProcess): void {
    this.deaths++
    this.step = this.#stepOf(member)
    world.trace(() => `DEATH of ${member.id}`)
    world.crash(member)
  }
}

function isSame(a: Moment, b: Moment): boolean {
  if (a.at === 'frame' && b.at === 'frame') return a.type === b.type && a.hop === b.hop
  if (a.at === 'asked' || b.at === 'asked') return a.at === b.at
  return a.at === b.at && 'what' in a && 'what' in b && a.what === b.what
}
