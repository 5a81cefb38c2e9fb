// What goes wrong in a simulated grid, and when. Each kind of fault is a row of a table with its weight and an act that
// says whether it could happen now. All but the death of a member for good are repaired by themselves.
import type { BlockId, ToCoordinator } from '@starling-grid/protocol'
import type { CoordinatorProcess } from '../coordinator-process.ts'
import type { VolunteerProcess } from '../volunteer-process.ts'
import type { World } from '../world.ts'
import { COORDINATOR_FAULTS } from './coordinators.ts'
import { FILE_FAULTS } from './files.ts'
import { LINK_FAULTS } from './links.ts'
import { MEMBER_FAULTS } from './members.ts'

/** A kind of fault. */
export interface FaultKind {
  /** how often it is drawn, beside the others */
  readonly weight: number
  /** false: it cannot happen now */
  strike(world: World): boolean | Promise<boolean>
  /** it waits for its moment, and counts when that comes */
  readonly waits?: true
}

const KINDS = { ...MEMBER_FAULTS, ...COORDINATOR_FAULTS, ...FILE_FAULTS, ...LINK_FAULTS } as const satisfies Record<
  string,
  FaultKind
>
export type Fault = keyof typeof KINDS
export const FAULTS = Object.keys(KINDS) as Fault[]
const LOTS = FAULTS.flatMap((fault) => new Array<Fault>(KINDS[fault].weight).fill(fault))

/** draws of a fault that can happen now */
const DRAWS = 4

export class Faults {
  readonly #world: World
  /** what happened, each with its time */
  readonly struck: Fault[] = []
  /** a coordinator that dies at one of its next writes and messages */
  #doomed: { readonly coordinator: CoordinatorProcess; moments: number } | undefined
  /** members whose socket breaks as they send this */
  readonly #breaking = new Map<VolunteerProcess, ToCoordinator['type']>()
  /** block of an epoch → how many of its next computations give no number */
  readonly #poisoned = new Map<BlockId, number>()
  #left: number

  constructor(world: World) {
    this.#world = world
    this.#left = world.scenario.faults
  }

  /** ms that all of them take at most */
  get longestMs(): number {
    const { faults, faultEveryMs } = this.#world.scenario
    return 2 * faultEveryMs * (faults + 1)
  }

  begin(): void {
    this.#world.later(this.#world.scenario.faultEveryMs, () => void this.#next())
  }

  async #next(): Promise<void> {
    const { dice, scenario, isOver } = this.#world
    if (this.#left === 0 || isOver) return
    this.#left--
    for (let draw = 0; draw < DRAWS; draw++) {
      const fault = dice.pick(LOTS) ?? 'socket-lost'
      if (!(await KINDS[fault].strike(this.#world))) continue
      if (!('waits' in KINDS[fault])) this.strikes(fault)
      break
    }
    this.#world.later(dice.between(1, 2 * scenario.faultEveryMs), () => void this.#next())
  }

  strikes(fault: Fault): void {
    this.#world.tell(() => `FAULT ${fault}`)
    this.struck.push(fault)
  }

  // ---- faults that wait for their moment ----

  /** It dies at the moment that comes so many writes and messages later. */
  doom(coordinator: CoordinatorProcess, moments: number): void {
    this.#doomed = { coordinator, moments }
  }

  /** It is about to write or has written, or sends a message. */
  onMoment(coordinator: CoordinatorProcess): void {
    const doomed = this.#doomed
    if (doomed?.coordinator !== coordinator || --doomed.moments > 0) return
    this.#doomed = undefined
    this.strikes('crash-between-effects')
    this.#world.crashCoordinator(coordinator)
  }

  breakAt(volunteer: VolunteerProcess, moment: ToCoordinator['type']): void {
    this.#breaking.set(volunteer, moment)
  }

  onSaid(volunteer: VolunteerProcess, type: ToCoordinator['type']): void {
    if (this.#breaking.get(volunteer) !== type) return
    this.#breaking.delete(volunteer)
    this.strikes('socket-lost-in-exchange')
    volunteer.loseSocket()
  }

  poison(block: BlockId, times: number): void {
    this.#poisoned.set(block, times)
  }

  /** One computation of it. */
  isPoisoned(block: BlockId): boolean {
    const times = this.#poisoned.get(block) ?? 0
    if (times > 0) this.#poisoned.set(block, times - 1)
    return times > 0
  }
}
