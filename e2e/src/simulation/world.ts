// The whole of a simulation: coordinators, members, journal, network and faults, and one event after another.
import type { JournalEntry } from '@starling-grid/coordinator/run'
import {
  memberId,
  type MemberId,
  type MessageTo,
  type Sha256,
  type VersionId,
  type VersionRef,
} from '@starling-grid/protocol'
import { Chronicle } from '../world/chronicle.ts'
import { Dice } from '../world/dice.ts'
import { digestOf, History, type Replica } from '../world/history.ts'
import { checkReplay } from '../world/replay.ts'
import type { Violations } from '../world/violations.ts'
import { EventQueue, LATENCY_MS } from './agenda.ts'
import { Connection, type VolunteerEnd } from './connection.ts'
import type { Context, Moment } from './context.ts'
import { CoordinatorProcess } from './coordinator-process.ts'
import { noCounts } from './counts.ts'
import { Faults, type Victims } from './faults.ts'
import { checkEntry, checkForm, checkInvariants } from './invariants.ts'
import { inventedStep } from './invented.ts'
import { Journal } from './journal.ts'
import type { Defect, Scenario } from './scenario.ts'
import { SimulatedShards } from './shards.ts'
import { type Kept, type Newcomer, VolunteerProcess } from './volunteer-process.ts'

/** of the events: how many let time pass although something could happen now */
const TICKS = 0.03
/** ms between ticks, at most: while something is under way, and while nothing is */
const BUSY_TICK_MS = 400
const IDLE_TICK_MS = 1500
/** ms until a process starts again, a member comes back, a socket is opened again; some take longer than T_lost */
const RESTART_MS = 6000
const RETURN_MS = 8000
const RECONNECT_MS = 2500
const LONG_ABSENCE_MS = 40_000
const LONG_ABSENCES = 0.25
/** ms that a link stays cut */
const CUT_MS = 1500
/** ms of silence after which a socket or a link counts as dead */
const SILENCE_MS = 5000
/**
 * ms within which members are cut off one after another, and as long again until they are back: below SILENCE_MS
 * together
 */
const SWIZZLE_MS = 1200
/** rows of a journal that a backup has at least, and how many it may lack */
const LEAST_ROWS = 4
const MOST_ROWS_LOST = 30
/** ms until a coordinator that was replaced learns of it from its lease */
const DEPOSED_MS = 15_000

export class World implements Context, Victims {
  readonly scenario: Scenario
  readonly dice: Dice
  readonly agenda: EventQueue
  readonly violations: Violations
  readonly history: History
  readonly counts = noCounts()
  readonly invented = new Map<VersionId, MemberId>()
  readonly volunteers: VolunteerProcess[] = []
  readonly journal = new Journal()
  chronicle: Chronicle
  readonly shards: SimulatedShards
  readonly faults: Faults
  readonly #blobs = new Map<Sha256, Replica>()
  readonly #peers = new Map<MemberId, VolunteerProcess>()
  readonly #coordinators: CoordinatorProcess[] = []
  /** seat → what its last member kept for the next visit */
  readonly #kept = new Map<number, Kept>()
  readonly #cuts = new Set<string>()
  readonly #poisoned = new Map<string, number>()
  readonly #trace: (line: () => string) => void
  /** told of what members do, so that tests can strike then */
  onMoment: ((member: VolunteerProcess, moment: Moment) => void) | undefined
  #noNetworkUntil = 0
  #connections = 0
  #started = 0
  #dirty = false

  constructor(scenario: Scenario, violations: Violations, trace: (line: () => string) => void) {
    this.scenario = scenario
    this.violations = violations
    this.#trace = trace
    this.dice = new Dice(scenario.seed)
    const { blocks, validationBlocks } = scenario.config
    this.shards = new SimulatedShards({ training: blocks, validation: validationBlocks })
    this.agenda = new EventQueue(this.dice, scenario.network === 'fifo')
    this.history = new History(scenario.config.genesis, scenario.config, violations)
    this.chronicle = new Chronicle(scenario.config, {
      history: this.history,
      violations,
      counts: this.counts,
      replicaOf: (blob) => this.#intact(blob),
    })
    this.faults = new Faults(this, this)
    this.#startCoordinator()
    for (let seat = 0; seat < scenario.seats; seat++)
      this.agenda.later(
        this.dice.pick([0, 0, 5000]) ?? 0,
        () => `seat ${seat} is taken`,
        () => this.#arrive(seat),
      )
  }

  #intact(blob: Sha256): Replica | undefined {
    const replica = this.#blobs.get(blob)
    return replica !== undefined && digestOf(replica) === blob ? replica : undefined
  }

  trace(line: () => string): void {
    this.#trace(() => {
      const text = line()
      return text === '' ? '' : `${(this.agenda.now / 1000).toFixed(3)} s  ${text}`
    })
  }

  /** One event: a fault, something under way, or time that passes. */
  step(): void {
    if (this.faults.due) return this.faults.inject()
    const errand = this.dice.chance(TICKS) ? undefined : this.agenda.take()
    if (errand === undefined) return this.#tick()
    this.trace(errand.what)
    errand.act()
  }

  #tick(): void {
    const idle = !this.agenda.busy
    const then = this.agenda.now + this.dice.between(1, idle ? IDLE_TICK_MS : BUSY_TICK_MS)
    const overdue = this.agenda.takeOverdue(then)
    if (overdue !== undefined) return (this.trace(overdue.what), overdue.act())
    this.agenda.now = then
    for (const coordinator of this.#coordinators) coordinator.tick()
  }

  /** After every event. */
  check(): void {
    if (!this.#dirty) return
    this.#dirty = false
    checkInvariants(this, this.volunteers, this.coordinator())
  }

  /** After the last. */
  checkEnd(): void {
    const coordinator = this.coordinator()
    if (coordinator?.disk.idle === true) checkReplay(this, coordinator, this.journal.entries)
  }

  moment(member: MemberId, moment: Moment): void {
    const volunteer = this.#peers.get(member)
    if (volunteer !== undefined) this.onMoment?.(volunteer, moment)
  }

  touched(): void {
    this.#dirty = true
  }

  peer(id: MemberId): VolunteerProcess | undefined {
    return this.#peers.get(id)
  }

  /** Checkpoints are durable; serving one needs a coordinator. */
  stored(version: VersionRef): Replica | undefined {
    const checkpoint = this.coordinator()?.state.checkpoints.find((one) => one.version.id === version.id)
    if (checkpoint === undefined) return undefined
    if (checkpoint.blob === undefined) return { version, counts: new Float32Array(this.history.length) }
    const replica = this.#blobs.get(checkpoint.blob)
    if (replica === undefined) this.coordinator()?.damaged(version, 'reader')
    return replica
  }

  damageCheckpoint(): boolean {
    const newest = this.coordinator()?.state.checkpoints.at(-1)
    if (newest?.blob === undefined || !this.chronicle.hasCheckpoint(newest.version)) return false
    return this.#blobs.delete(newest.blob)
  }

  restoreBackup(): boolean {
    const rows = this.journal.entries.length
    if (this.coordinator() === undefined || rows < LEAST_ROWS) return false
    for (const process of this.#coordinators) process.die('its disk broke')
    this.journal.restore(this.dice.between(Math.max(1, rows - MOST_ROWS_LOST), rows - 1))
    this.chronicle = this.chronicle.restoredTo(this.journal.entries)
    return true
  }

  // ---- coordinators ----

  /** The process that owns the journal. */
  coordinator(): CoordinatorProcess | undefined {
    return this.#coordinators.find((process) => process.current)
  }

  #startCoordinator(): void {
    const chronicle = (): Chronicle => this.chronicle
    const records = {
      journal: this.journal,
      get chronicle() {
        return chronicle()
      },
      blobs: this.#blobs,
      watch: (process: CoordinatorProcess, entry: JournalEntry) => this.#watch(process, entry),
      formed: (process: CoordinatorProcess, order: MessageTo<'form'>) =>
        checkForm(this, this.volunteers, process, order),
      switchJob: (process: CoordinatorProcess) => this.#switchJob(process),
    }
    const process = new CoordinatorProcess(this, records, ++this.#started)
    this.#coordinators.push(process)
    this.trace(() => `${process.name} starts with ${this.journal.entries.length} journal entries`)
    const { gapMs } = this.scenario
    if (gapMs === 0) process.start()
    else
      this.agenda.later(
        this.dice.between(0, gapMs),
        () => `${process.name} listens`,
        () => process.start(),
      )
    this.#restartWhenDead()
  }

  /**
   * All members take part in another job for a while. What was committed is in a checkpoint, unless that took too long.
   */
  #switchJob(process: CoordinatorProcess): void {
    const { state, parkedInTime } = process
    const works = state.phase.type === 'ring' || state.phase.type === 'async'
    if (works && parkedInTime && !this.chronicle.hasCheckpoint(this.chronicle.head))
      this.violations.report(
        'lost-work',
        `the run pauses for another job and its version ${this.chronicle.head.v} is in no checkpoint`,
      )
    for (const volunteer of this.volunteers)
      if (volunteer.alive && volunteer.connection?.coordinator === process)
        volunteer.visitAnotherJob(this.#keep(volunteer))
  }

  /** Its state for the next visit of its seat. */
  #keep(volunteer: VolunteerProcess): Kept | undefined {
    const { kept } = volunteer
    if (!this.scenario.warm || kept === undefined) return undefined
    this.#kept.set(volunteer.seat, kept)
    return kept
  }

  #watch(process: CoordinatorProcess, entry: JournalEntry): void {
    // what was committed in rows that are lost needs two voices, and may be repeated (restored.ts)
    if (entry.type === 'rewind' && this.chronicle.justRestored) return
    checkEntry(this, this.volunteers, process, { ...entry, head: this.chronicle.head })
  }

  crashCoordinator(coordinator: CoordinatorProcess): void {
    coordinator.die('crash')
  }

  /** A supervisor: whenever no process is left, one starts. */
  #restartWhenDead(): void {
    this.agenda.later(
      this.dice.between(0, RESTART_MS),
      () => '',
      () => {
        if (this.#coordinators.some((process) => process.alive)) return this.#restartWhenDead()
        this.#startCoordinator()
      },
    )
  }

  /** A second coordinator, while the first still runs and serves its sockets. */
  takeOver(): void {
    const deposed = this.coordinator()
    this.#startCoordinator()
    this.agenda.later(
      this.dice.between(0, DEPOSED_MS),
      () => `${deposed?.name} learns that it was replaced`,
      () => deposed?.die('its lease ended'),
    )
  }

  // ---- members ----

  #arrive(seat: number, newcomer?: Newcomer): void {
    const id = memberId(`m${seat}.${this.volunteers.filter((volunteer) => volunteer.seat === seat).length}`)
    const volunteer = new VolunteerProcess(this, id, seat)
    volunteer.newcomer = newcomer
    this.#peers.set(id, volunteer)
    this.volunteers.push(volunteer)
    const kept = this.#kept.get(seat)
    if (kept !== undefined) volunteer.goOnFrom(kept)
    this.#connect(volunteer)
  }

  /** On a seat of its own; who takes that seat later is like others. */
  arriveOddly(kind: Newcomer): void {
    const seat = this.scenario.seats + this.counts.faults['odd-newcomer']
    this.#arrive(seat, kind)
  }

  crash(volunteer: VolunteerProcess): void {
    volunteer.die()
    for (const other of this.volunteers) if (other.alive) other.noticeDeathOf(volunteer.id)
    this.agenda.later(
      this.dice.between(0, this.#absence(RETURN_MS)),
      () => `seat ${volunteer.seat} is taken again`,
      () => this.#arrive(volunteer.seat),
    )
  }

  departed(member: VolunteerEnd): void {
    const volunteer = this.#peers.get(member.id)
    if (volunteer?.alive !== true) return
    this.#keep(volunteer)
    this.crash(volunteer)
  }

  reconnect(member: VolunteerEnd): void {
    this.agenda.later(
      this.dice.between(0, this.#absence(RECONNECT_MS)),
      () => `${member.id} opens a socket`,
      () => {
        const volunteer = this.#peers.get(member.id)
        if (volunteer?.alive === true) this.#connect(volunteer)
      },
    )
  }

  #absence(ms: number): number {
    return this.faults.left > 0 && this.dice.chance(LONG_ABSENCES) ? LONG_ABSENCE_MS : ms
  }

  suspend(volunteer: VolunteerProcess, ms: number): void {
    volunteer.asleep.begin()
    if (ms > SILENCE_MS)
      this.agenda.later(
        SILENCE_MS,
        () => `${volunteer.id} is silent`,
        () => {
          if (!volunteer.asleep.now) return
          volunteer.connection?.break()
          for (const other of this.volunteers) if (other.alive) other.noticeDeathOf(volunteer.id)
        },
      )
    this.agenda.later(
      ms,
      () => `${volunteer.id} wakes up`,
      () => volunteer.asleep.end(),
    )
  }

  stick(volunteer: VolunteerProcess, ms: number): void {
    volunteer.stuck.begin()
    this.agenda.later(
      ms,
      () => `${volunteer.id} computes again`,
      () => volunteer.stuck.end(),
    )
  }

  outage(ms: number): void {
    this.#noNetworkUntil = this.agenda.now + ms
    for (const { connection } of this.volunteers) connection?.break()
  }

  lie(volunteer: VolunteerProcess): boolean {
    const { kept } = volunteer
    const state = this.coordinator()?.state
    const invented = kept && state && inventedStep(state, this.history, kept)
    if (invented === undefined) return false
    this.invented.set(invented.replica.version.id, volunteer.id)
    volunteer.visitAnotherJob(invented)
    return true
  }

  swizzle(): void {
    const alive = this.volunteers.filter((volunteer) => volunteer.alive)
    for (const { id } of alive) {
      this.agenda.later(
        this.dice.between(0, SWIZZLE_MS),
        () => `nothing reaches ${id}, and nothing of it others`,
        () => this.agenda.stop(id),
      )
      this.agenda.later(
        SWIZZLE_MS + LATENCY_MS + this.dice.between(0, SWIZZLE_MS),
        () => `${id} can be reached again`,
        () => this.agenda.release(id),
      )
    }
  }

  /** To the newest process; now and then to one that was replaced and does not know it yet. */
  #connect(volunteer: VolunteerProcess): void {
    const processes = this.#coordinators.filter((process) => process.alive && process.listens)
    const coordinator = this.dice.chance(0.1) ? this.dice.pick(processes) : processes.at(-1)
    if (coordinator === undefined || this.agenda.now < this.#noNetworkUntil) return this.reconnect(volunteer)
    volunteer.connect(
      new Connection({ member: volunteer, coordinator, number: ++this.#connections }, this.agenda, this.dice),
    )
  }

  // ---- links and blocks ----

  isCut(from: MemberId, to: MemberId): boolean {
    const [a, b] = this.scenario.brokenLink ?? []
    const seats = [this.#peers.get(from)?.seat, this.#peers.get(to)?.seat]
    return this.#cuts.has(`${from} ${to}`) || (a !== undefined && seats[0] === a && seats[1] === b)
  }

  /** What is under way is lost, and what follows for a while. */
  cut(from: MemberId, to: MemberId): void {
    const link = `${from} ${to}`
    this.#cuts.add(link)
    this.agenda.lose(`${from}⇢${to}`)
    const generation = this.peer(to)?.core.ring?.generation
    this.agenda.later(
      this.dice.between(0, CUT_MS),
      () => `the link ${link} works again`,
      () => {
        this.#cuts.delete(link)
        if (generation !== undefined) this.peer(to)?.missed(from, generation)
      },
    )
  }

  has(defect: Defect, { seat }: { readonly seat: number }): boolean {
    return seat === 0 && this.scenario.defect === defect
  }

  poison(block: string, times: number): void {
    this.#poisoned.set(block, times)
  }

  poisoned(blocks: readonly string[]): boolean {
    const block = blocks.find((id) => (this.#poisoned.get(id) ?? 0) > 0)
    if (block !== undefined) this.#poisoned.set(block, (this.#poisoned.get(block) ?? 0) - 1)
    return block !== undefined
  }
}
