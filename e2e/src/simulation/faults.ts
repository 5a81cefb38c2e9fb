// What goes wrong in a simulation: each kind of fault as one function that says whether it could happen now.
import { type BlockId, trainingBlock, type MemberId } from '@starling-grid/protocol'
import { neighbours } from '@starling-grid/volunteer/member'
import type { Context } from './context.ts'
import type { CoordinatorProcess } from './coordinator-process.ts'
import { type Fault, FAULTS } from './counts.ts'
import { type Newcomer, NEWCOMERS, type VolunteerProcess } from './volunteer-process.ts'

/**
 * When a member's socket breaks at the worst moment: as it sends this, or begins to fetch a state from another member.
 */
const MOMENTS = ['state', 'state', 'fetch', 'fetch', 'fetch', 'confirm', 'held', 'abort'] as const

/** Draws: a crash between effects must meet a decision with several of them, so it is tried more often. */
const WEIGHTS: Record<Fault, number> = {
  'member-crash': 4,
  'member-leave': 1,
  'socket-loss': 4,
  'socket-loss-in-exchange': 3,
  'all-sockets-lost': 2,
  'coordinator-crash': 3,
  'crash-between-effects': 4,
  takeover: 1,
  'spurious-abort': 3,
  'link-partition': 2,
  'false-claim': 2,
  'bad-gradient': 1,
  'everybody-dies': 1,
  'suspended-member': 3,
  'stuck-member': 2,
  'network-outage': 1,
  swizzle: 2,
  'disk-failure': 2,
  'job-switch': 2,
  'damaged-checkpoint': 2,
  'restored-backup': 1,
  'damaged-shard': 1,
  'lost-downloads': 1,
  'odd-newcomer': 2,
}
/** These wait for their moment, and count when it comes. */
const WAITING: ReadonlySet<Fault> = new Set(['crash-between-effects', 'socket-loss-in-exchange'])
const LOTS = FAULTS.flatMap((fault) => new Array<Fault>(WEIGHTS[fault]).fill(fault))

/** ms: shorter and longer than what others bear of silence, of a stalled step (stallMs), and than T_lost (R6) */
const SLEEP_MS = [500, 15_000] as const
const STUCK_MS = [5000, 30_000] as const
const OUTAGE_MS = [5000, 30_000] as const
/** ms that a file of the dataset is damaged, or a member cannot fetch any */
const SHARD_MS = [1000, 30_000] as const
/** ms that a disk is full or gone */
const DISK_MS = [500, 9000] as const

/** What faults do to the world. */
export interface Victims {
  readonly volunteers: readonly VolunteerProcess[]
  coordinator(): CoordinatorProcess | undefined
  crash(volunteer: VolunteerProcess): void
  crashCoordinator(coordinator: CoordinatorProcess): void
  takeOver(): void
  cut(from: MemberId, to: MemberId): void
  /** The process stands still for a while (ms); others find it silent. */
  suspend(volunteer: VolunteerProcess, ms: number): void
  /** Its computation does, and nothing else. */
  stick(volunteer: VolunteerProcess, ms: number): void
  /** No socket lives, and none opens for a while. */
  outage(ms: number): void
  /**
   * Members are cut off one after another, for less than the time after which they count as gone, and come back in
   * another order.
   */
  swizzle(): void
  /** It comes back with a step that it made up alone; false: it holds no committed version to begin with. */
  lie(volunteer: VolunteerProcess): boolean
  /** The bytes of the newest checkpoint are gone; false: there is none. */
  damageCheckpoint(): boolean
  /** Coordinators die, and the next one reads the journal as it was some rows ago. */
  restoreBackup(): boolean
  poison(block: string, times: number): void
  /** A volunteer comes, of this kind. */
  arriveOddly(kind: Newcomer): void
}

export class Faults {
  readonly #context: Context
  readonly #victims: Victims
  left: number

  constructor(context: Context, victims: Victims) {
    this.#context = context
    this.#victims = victims
    this.left = context.scenario.faults
  }

  get due(): boolean {
    return this.left > 0 && this.#context.dice.chance(this.#context.scenario.faultRate)
  }

  /** One fault, if the one that was drawn is possible now. */
  inject(): void {
    const fault = this.#context.dice.pick(LOTS) ?? 'member-crash'
    if (!this.#happens(fault)) return
    this.left--
    this.#context.trace(() => `FAULT ${fault}`)
    if (!WAITING.has(fault)) this.#context.counts.faults[fault]++
  }

  #happens(fault: Fault): boolean {
    switch (fault) {
      case 'member-crash':
        return this.#withVolunteer((volunteer) => this.#victims.crash(volunteer))
      case 'member-leave':
        return this.#withVolunteer(
          (volunteer) => this.#leave(volunteer),
          ({ connection }) => connection !== undefined,
        )
      case 'socket-loss':
        return this.#withVolunteer(
          ({ connection }) => connection?.break(),
          ({ connection }) => connection?.up === true,
        )
      case 'socket-loss-in-exchange':
        return this.#withVolunteer((volunteer) => {
          volunteer.breaksAt = this.#context.dice.pick(MOMENTS)
        })
      case 'all-sockets-lost':
        for (const { connection } of this.#victims.volunteers) connection?.break()
        return true
      case 'coordinator-crash':
        return this.#withCoordinator((coordinator) => this.#victims.crashCoordinator(coordinator))
      case 'crash-between-effects':
        return this.#withCoordinator((coordinator) => {
          coordinator.doomed = true
        })
      case 'takeover':
        return this.#withCoordinator(() => this.#victims.takeOver())
      case 'spurious-abort':
        return this.#withVolunteer(
          (volunteer) => this.#abort(volunteer),
          ({ core }) => core.ring !== undefined,
        )
      case 'link-partition':
        return this.#withVolunteer(
          (volunteer) => this.#partition(volunteer),
          ({ core }) => (core.ring?.members.length ?? 0) > 1,
        )
      case 'false-claim': {
        const volunteer = this.#context.dice.pick(this.#victims.volunteers.filter(({ alive }) => alive))
        return volunteer !== undefined && this.#victims.lie(volunteer)
      }
      case 'suspended-member':
        return this.#withVolunteer(
          (volunteer) => this.#victims.suspend(volunteer, this.#duration(SLEEP_MS)),
          ({ asleep }) => !asleep.now,
        )
      case 'stuck-member':
        return this.#withVolunteer(
          (volunteer) => this.#victims.stick(volunteer, this.#duration(STUCK_MS)),
          ({ stuck }) => !stuck.now,
        )
      case 'network-outage':
        this.#victims.outage(this.#duration(OUTAGE_MS))
        return true
      case 'swizzle':
        this.#victims.swizzle()
        return true
      case 'disk-failure':
        return this.#withCoordinator(({ disk }) => disk.fail(this.#duration(DISK_MS)))
      case 'damaged-checkpoint':
        return this.#victims.damageCheckpoint()
      case 'damaged-shard':
        this.#context.shards.damage(this.#block(), this.#until(SHARD_MS))
        return true
      case 'lost-downloads':
        return this.#withVolunteer(({ id }) => this.#context.shards.cutOff(id, this.#until(SHARD_MS)))
      case 'odd-newcomer':
        this.#victims.arriveOddly(this.#context.dice.pick(NEWCOMERS) ?? 'mute')
        return true
      case 'restored-backup':
        return this.#victims.restoreBackup()
      case 'job-switch':
        return this.#withCoordinator((coordinator) => coordinator.park())
      case 'bad-gradient':
        this.#poison()
        return true
      case 'everybody-dies':
        for (const volunteer of this.#victims.volunteers) if (volunteer.alive) this.#victims.crash(volunteer)
        if (this.#context.dice.chance(0.3))
          this.#withCoordinator((coordinator) => this.#victims.crashCoordinator(coordinator))
        return true
      default:
        return fault satisfies never
    }
  }

  #withVolunteer(
    act: (volunteer: VolunteerProcess) => void,
    suits: (volunteer: VolunteerProcess) => boolean = () => true,
  ): boolean {
    const volunteer = this.#context.dice.pick(this.#victims.volunteers.filter((one) => one.alive && suits(one)))
    if (volunteer === undefined) return false
    this.#context.trace(() => `to ${volunteer.id}:`)
    act(volunteer)
    return true
  }

  #withCoordinator(act: (coordinator: CoordinatorProcess) => void): boolean {
    const coordinator = this.#victims.coordinator()
    if (coordinator === undefined || coordinator.doomed) return false
    act(coordinator)
    return true
  }

  #duration([least, most]: readonly [number, number]): number {
    return this.#context.dice.between(least, most)
  }

  #until(range: readonly [number, number]): number {
    return this.#context.agenda.now + this.#duration(range)
  }

  #block(): BlockId {
    const { config } = this.#context.scenario
    return trainingBlock(this.#context.dice.below(config.epochs), this.#context.dice.below(config.blocks))
  }

  /** A process waits until it may go; a tab is gone at once. */
  #leave(volunteer: VolunteerProcess): void {
    volunteer.leave()
    if (this.#context.dice.chance(0.5)) this.#victims.crash(volunteer)
  }

  #abort(volunteer: VolunteerProcess): void {
    const { ring } = volunteer.core
    if (ring === undefined) return
    const blamed = this.#context.dice.pick([null, ...ring.members]) ?? null
    const why = this.#context.dice.pick(['unopened', 'closed', 'silent', 'refused', 'stalled'] as const) ?? 'stalled'
    volunteer.take({
      type: 'trouble',
      generation: ring.generation,
      blamed,
      why,
      code: 'reduce-timeout',
      message: 'for no reason',
    })
  }

  #partition({ id, core }: VolunteerProcess): void {
    const { ring } = core
    const successor = ring?.members[(ring.rank + 1) % ring.members.length]
    const other = ring?.exchange?.type === 'direct' ? this.#context.dice.pick(neighbours(ring)) : successor
    if (other !== undefined) this.#victims.cut(id, other)
  }

  /** Once or twice it is chance; twelve times it is the block (it is set aside in async mode). */
  #poison(): void {
    this.#victims.poison(this.#block(), this.#context.dice.pick([1, 2, 12]) ?? 1)
  }
}
