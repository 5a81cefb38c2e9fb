// One WebSocket between a member and a coordinator. When it breaks, some of what is under way is lost, and either end
// hears of it later: what a half that does not know yet sends into it vanishes.
import type { MemberId, Push, ToCoordinator, ToVolunteer, VersionRef } from '@starling-grid/protocol'
import type { Dice } from '../world/dice.ts'
import type { Replica } from '../world/history.ts'
import type { EventQueue } from './agenda.ts'
import { describe } from './describe.ts'

/** ms until an end notices that the other is gone */
const NOTICE_MS = 3000

export interface CoordinatorEnd {
  readonly name: string
  readonly alive: boolean
  connected(connection: Connection): void
  received(connection: Connection, message: ToCoordinator): void
  closed(connection: Connection): void
  /** over HTTP; false: no answer */
  pushed(push: Push, gradient: Float32Array): boolean
  /** what off-ring members pushed, while it is kept (A1) */
  offRingSum(id: number): Float32Array | undefined
  uploaded(member: MemberId, replica: Replica): void
}

export interface VolunteerEnd {
  readonly id: MemberId
  readonly alive: boolean
  received(connection: Connection, message: ToVolunteer): void
  closed(connection: Connection): void
}

export class Connection {
  readonly member: VolunteerEnd
  readonly coordinator: CoordinatorEnd
  readonly #agenda: EventQueue
  readonly #dice: Dice
  readonly #lane: string
  /** what the member says that it holds when it joins */
  holds: VersionRef | undefined
  #up = true
  /** which ends still take what arrives */
  readonly #open = { member: true, coordinator: true }

  constructor(
    ends: { readonly member: VolunteerEnd; readonly coordinator: CoordinatorEnd; readonly number: number },
    agenda: EventQueue,
    dice: Dice,
  ) {
    this.member = ends.member
    this.coordinator = ends.coordinator
    this.#lane = `${ends.member.id}⇄${ends.coordinator.name}#${ends.number}`
    this.#agenda = agenda
    this.#dice = dice
  }

  get up(): boolean {
    return this.#up
  }

  toCoordinator(message: ToCoordinator): void {
    if (!this.#up) return
    const { member, coordinator } = this
    this.#agenda.send(
      `${this.#lane}↑`,
      () => `${member.id} → ${coordinator.name}: ${describe(message)}`,
      () => {
        if (this.#open.coordinator && coordinator.alive) coordinator.received(this, message)
      },
    )
  }

  toMember(message: ToVolunteer): void {
    if (!this.#up) return
    const { member, coordinator } = this
    this.#agenda.send(
      `${this.#lane}↓`,
      () => `${coordinator.name} → ${member.id}: ${describe(message)}`,
      () => {
        if (this.#open.member && member.alive) member.received(this, message)
      },
    )
  }

  /** This end looks no more at what arrives. */
  forget(end: 'member' | 'coordinator'): void {
    this.#open[end] = false
    this.break()
  }

  break(): void {
    if (!this.#up) return
    this.#up = false
    for (const direction of ['↑', '↓']) this.#agenda.lose(this.#lane + direction)
    this.#notice('member', () => this.member.closed(this))
    this.#notice('coordinator', () => this.coordinator.closed(this))
  }

  #notice(end: 'member' | 'coordinator', tell: () => void): void {
    const about =
      end === 'member'
        ? () => `${this.member.id} notices that its socket is gone`
        : () => `${this.coordinator.name} notices that ${this.member.id} is gone`
    this.#agenda.later(this.#dice.between(0, NOTICE_MS), about, () => {
      if (!this.#open[end] || !this[end].alive) return
      this.#open[end] = false
      tell()
    })
  }
}
