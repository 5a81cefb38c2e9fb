// START HERE: one seed, one grid of production's own shells on virtual time. Coordinators over a data folder, and
// volunteers, with faults between and in them. The invariants are those of docs/RULES.md.
import { type JobId, type MemberId, type StepRecord, packFrame, unpackFrame } from '@starling-grid/protocol'
import { compileChecks } from '@starling-grid/protocol/compiled-checks'
import { fetchLateParts } from '@starling-grid/volunteer/testing'
import { CoordinatorProcess } from './coordinator-process.ts'
import { type Counts, noCounts } from './counts.ts'
import { answersNothing } from './defects.ts'
import { Dice } from './dice.ts'
import { Disk } from './disk.ts'
import { type Fault, Faults } from './faults/faults.ts'
import { gridJob, type JobShape } from './job.ts'
import type { Moment } from './moments.ts'
import { Observer } from './observer.ts'
import { checkReplay } from './replay.ts'
import { gridScenario, type GridScenario, type GridOptions } from './scenario.ts'
import { seeded } from './seeded.ts'
import { type Violation, Violations } from './violations.ts'
import { VirtualTime } from './virtual-time.ts'
import { type Temper, VolunteerProcess } from './volunteer-process.ts'
import { WatchedRun } from './watched-run.ts'
import { Air, type LineParts } from './wires.ts'

/** I9: ms that a grid may take after its last fault */
const CALM_MS = 900_000
/** ms between looks at whether the run is over */
const LOOK_MS = 500
/** ms until the supervisor of a process that ended by itself starts another */
const RESTART_MS = 3000
/** ms until the supervisor of a coordinator that died starts another */
const MIN_RESTART_MS = 100
const COORDINATOR_RESTART_MS = 8000

export interface GridOutcome {
  readonly scenario: GridScenario
  readonly violation: Violation | undefined
  readonly counts: Counts
  /** of the first run */
  readonly records: readonly StepRecord[]
  /** virtual ms */
  readonly ms: number
  readonly events: number
  readonly faults: readonly Fault[]
  /** SHA-256 of every durable row: equal for equal seeds */
  readonly fingerprint: string
  readonly story: readonly string[]
}

export class World {
  readonly scenario: GridScenario
  readonly time = new VirtualTime()
  readonly dice: Dice
  readonly violations = new Violations(new Set())
  readonly runs = new Map<JobId, WatchedRun>()
  readonly air: Air
  readonly disk: Disk
  readonly counts = noCounts()
  readonly observer: Observer
  readonly faults: Faults
  readonly #outside = this.time.process()
  readonly #coordinators: CoordinatorProcess[] = []
  readonly #volunteers = new Map<number, VolunteerProcess>()
  /** seat → what its cache holds when its process ended */
  readonly #caches = new Map<number, Map<string, Uint8Array>>()
  readonly #story: ((line: () => string) => void) | undefined
  readonly #lines: string[] = []
  /** ms: no socket opens before */
  noNetworkUntil = 0
  /** told of what volunteers do, so that tests can strike then */
  onMoment: ((volunteer: VolunteerProcess, moment: Moment) => void) | undefined

  constructor(scenario: GridScenario, dice: Dice, isTold = false) {
    this.scenario = scenario
    this.dice = dice
    this.disk = new Disk(scenario, this.counts)
    const { linkBytesPerMs } = scenario.members
    this.air = new Air(
      { ...this.lines, linkBytesPerMs },
      { mayTalk: (a, b) => this.#mayLink(a, b), isBroken: (from, to) => this.#isBroken(from, to) },
    )
    this.air.onFrame = (self, at, frame) => this.#frame(self, at, frame)
    if (scenario.defect === 'false-chunks') this.air.changed = (self, frame) => this.#changed(self, frame)
    this.observer = new Observer(this)
    this.faults = new Faults(this)
    if (isTold) this.#story = (line) => this.#lines.push(`${(this.time.now / 1000).toFixed(3)} s  ${line()}`)
    this.disk.onRows = (job, rows) => {
      const run = this.run(job)
      for (const row of rows) {
        this.tell(() => `journal of ${job}: ${JSON.stringify(row.entry).slice(0, 240)}`)
        this.observer.written(run, row)
        run.durable([row])
      }
    }
  }

  async live(): Promise<void> {
    await this.#prepare(this.scenario.shape)
    this.startCoordinator()
    for (let seat = 0; seat < this.scenario.seats; seat++)
      this.#outside.timer(this.dice.between(0, 4000), () => this.arrive(seat, this.#temperOf(seat)))
    this.faults.begin()
    if (this.scenario.appendAtMs !== undefined) this.later(this.scenario.appendAtMs, () => this.#append())
    this.time.afterEach = () => this.observer.look()
    const { shape, computeMs, members } = this.scenario
    // as if the slowest member did all by itself
    const calmMs = CALM_MS + shape.epochs * shape.blocks * computeMs * members.slowness
    await this.time.run(() => this.isOver, this.faults.longestMs + calmMs)
    if (!this.isOver) this.violations.report('I9', `not finished ${calmMs / 1000} s after the last fault`)
    await this.#checkReplay()
    for (const volunteer of this.#volunteers.values()) volunteer.kill()
    for (const coordinator of this.#coordinators) coordinator.kill()
  }

  /** Its dataset is there, and its rows are watched. */
  async #prepare(shape: JobShape, id = 'simulated'): Promise<WatchedRun> {
    const run = new WatchedRun(gridJob(shape, id), this)
    this.runs.set(run.job.stored.id, run)
    for (const bytes of run.job.shards.values()) await this.disk.blobs.put(bytes)
    if (run.job.grown) this.disk.shelf.write(id, run.job.manifest, run.job.shards)
    if (this.runs.size === 1) await this.disk.createJob(run.job.stored)
    return run
  }

  /** An owner hands another job in; its members work on it first. False: no coordinator takes it. */
  async submit(shape: JobShape): Promise<boolean> {
    const { coordinator } = this
    if (coordinator?.isOpen !== true || this.disk.fails(this.time.now)) return false
    const run = await this.#prepare(shape, `simulated-${this.runs.size}`)
    this.counts.jobs++
    await coordinator.runs.begin(run.job.stored).catch((error: unknown) => {
      this.tell(() => `the job waits in the folder: ${String(error)}`)
    })
    return true
  }

  /** The owner of the first job appends to its dataset. */
  #append(): void {
    const [run] = this.runs.values()
    if (run?.job.grown === undefined || run.finished) return
    const { manifest, shards } = run.job.grown
    this.tell(() => `data is appended to the dataset of ${run.job.stored.id}`)
    this.disk.shelf.write(run.job.stored.id, manifest, shards)
  }

  get isOver(): boolean {
    return this.violations.first !== undefined || [...this.runs.values()].every(({ finished }) => finished)
  }

  /** @throws Error when there is no such job */
  run(job: JobId): WatchedRun {
    const run = this.runs.get(job)
    if (run === undefined) throw new Error(`internal: rows of job ${job}, which was never submitted`)
    return run
  }

  tell(line: () => string): void {
    this.#story?.(line)
  }

  // ---- lines ----

  /** of everything between two processes */
  get lines(): LineParts {
    const { latencyMs, slowLineMs } = this.scenario.members
    return { dice: this.dice, latencyMs, slowLineMs }
  }

  #seatOf(member: MemberId): number | undefined {
    return this.volunteers.find((volunteer) => volunteer.member === member)?.seat
  }

  /** R17: a link in one direction only. */
  #isBroken(from: MemberId, to: MemberId): boolean {
    const { brokenLink } = this.scenario.members
    return brokenLink !== undefined && brokenLink[0] === this.#seatOf(from) && brokenLink[1] === this.#seatOf(to)
  }

  /** The coordinator introduces them, and their networks let them reach each other. */
  #mayLink(a: MemberId, b: MemberId): boolean {
    const { unlinked, linkless } = this.scenario.members
    const seats = [a, b].map((id) => this.#seatOf(id))
    if (linkless !== undefined && seats.includes(linkless)) return false
    if (unlinked.some((pair) => pair.every((seat) => seats.includes(seat)))) return false
    return this.#coordinators.some((coordinator) => coordinator.mayTalk(a, b))
  }

  /** What it holds: by its upload, or by another member over a link, also one that the coordinator relays (R18). */
  canBeHadFrom(volunteer: VolunteerProcess): boolean {
    const { linkless } = this.scenario.members
    const opensLinks = ({ seat, temper }: VolunteerProcess): boolean => seat !== linkless && temper !== 'unreachable'
    if (!answersNothing(volunteer, 'PUT', '', this.scenario)) return true
    return opensLinks(volunteer) && this.volunteers.some((other) => other !== volunteer && opensLinks(other))
  }

  /** What a digest takes of virtual time. */
  async digestTime(): Promise<void> {
    const { digestMs } = this.scenario.members
    if (digestMs > 0) await this.#outside.sleep(this.dice.below(digestMs))
  }

  // ---- volunteers ----

  get volunteers(): readonly VolunteerProcess[] {
    return [...this.#volunteers.values()].filter(({ isAlive }) => isAlive)
  }

  #temperOf(seat: number): Temper {
    return seat < this.scenario.accomplices ? 'accomplice' : 'honest'
  }

  /** Also of those that are gone. */
  volunteerAt(seat: number): VolunteerProcess | undefined {
    return this.#volunteers.get(seat)
  }

  /** A process begins at this seat; where members come back warm it finds what the one before it kept. */
  arrive(seat: number, temper: Temper = 'honest'): VolunteerProcess | undefined {
    if (this.isOver) return undefined
    const isWarm = temper !== 'honest' || (this.scenario.warm && this.#volunteers.get(seat)?.temper !== 'liar')
    const cache = (isWarm ? this.#caches.get(seat) : undefined) ?? new Map<string, Uint8Array>()
    this.#caches.set(seat, cache)
    const volunteer = new VolunteerProcess(this, { seat, cache, temper })
    this.#volunteers.set(seat, volunteer)
    volunteer.start()
    return volunteer
  }

  /** Unless another one came before. */
  arriveInPlaceOf(volunteer: VolunteerProcess, temper?: Temper): void {
    if (this.#volunteers.get(volunteer.seat) === volunteer && !volunteer.isAlive) this.arrive(volunteer.seat, temper)
  }

  /** Its process ended by itself; another one comes. */
  ended(volunteer: VolunteerProcess): void {
    this.later(this.dice.between(LOOK_MS, RESTART_MS), () => this.arriveInPlaceOf(volunteer))
  }

  #frame(self: MemberId, at: 'sends' | 'gets', frame: Uint8Array): void {
    if (this.onMoment === undefined) return
    const volunteer = this.volunteers.find(({ member }) => member === self)
    const { type, hop } = unpackFrame(frame)
    if (volunteer !== undefined) this.onMoment(volunteer, { at, type, hop })
  }

  /** What the member at the first seat passes on is not what it has. */
  #changed(self: MemberId, frame: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    const sender = this.volunteers.find(({ member }) => member === self)
    const { payload, ...rest } = unpackFrame(frame)
    if (sender?.seat !== 0 || rest.type !== 'chunk') return frame
    this.counts.falseChunks++
    return packFrame({ ...rest, payload: payload.map((byte) => byte ^ 1) })
  }

  // ---- coordinators ----

  /** The newest. */
  get coordinator(): CoordinatorProcess | undefined {
    return this.#coordinators.at(-1)
  }

  /** Those that answer: the newest, and one that does not know yet that it was replaced. */
  get answering(): readonly CoordinatorProcess[] {
    return this.#coordinators.filter(({ isOpen }) => isOpen)
  }

  /** Instead of one that died, or against one that lives. */
  startCoordinator(): void {
    const coordinator: CoordinatorProcess = new CoordinatorProcess({
      time: this.time,
      disk: this.disk,
      dice: this.dice,
      timing: this.scenario.timing,
      onRefused: (code, what) => this.observer.refused(code, what),
      onTrouble: (text) => this.observer.troubled(text),
      onDeposed: () => this.#restartUnlessReplaced(coordinator),
      onWrite: () => this.faults.onMoment(coordinator),
    })
    this.#coordinators.push(coordinator)
    this.tell(() => `coordinator ${this.#coordinators.length} starts`)
    coordinator.start().then(
      () => this.observer.opened(coordinator),
      (error: unknown) => this.#failedToStart(coordinator, error),
    )
  }

  /** All of them, for good. */
  killCoordinators(): void {
    for (const coordinator of this.#coordinators) this.#kill(coordinator)
  }

  /** Its supervisor starts another one. */
  crashCoordinator(coordinator: CoordinatorProcess): void {
    this.#kill(coordinator)
    this.later(this.dice.between(MIN_RESTART_MS, COORDINATOR_RESTART_MS), () => {
      if (this.coordinator === coordinator) this.startCoordinator()
    })
  }

  /** Its sockets break. */
  #kill(coordinator: CoordinatorProcess): void {
    coordinator.kill()
    for (const volunteer of this.volunteers) if (volunteer.coordinator === coordinator) volunteer.loseSocket()
  }

  /** Its disk failed: it is started again by hand. */
  #failedToStart(coordinator: CoordinatorProcess, error: unknown): void {
    if (!this.disk.fails(this.time.now) && !String(error).includes('nothing can be written'))
      this.violations.report('replay', `a coordinator cannot start: ${String(error)}`)
    coordinator.kill()
    this.#restartUnlessReplaced(coordinator)
  }

  #restartUnlessReplaced(coordinator: CoordinatorProcess): void {
    this.later(LOOK_MS, () => this.coordinator === coordinator && this.startCoordinator())
  }

  later(ms: number, act: () => void): void {
    this.#outside.timer(ms, act)
  }

  /** R1: when nothing waits for the disk, its rows make what the coordinator knows. */
  async #checkReplay(): Promise<void> {
    if (this.violations.first !== undefined) return
    for (const host of this.coordinator?.runs.list().filter(({ history }) => !history.isReleased) ?? [])
      checkReplay(this, host, await this.disk.load(host.job.id))
  }

  outcome(): GridOutcome {
    const [first] = this.runs.values()
    return {
      scenario: this.scenario,
      violation: this.violations.first,
      counts: this.counts,
      records: first?.chronicle.records ?? [],
      ms: this.time.now,
      events: this.time.events,
      faults: this.faults.struck,
      fingerprint: [...this.runs.values()].map(({ fingerprint }) => fingerprint).join(' '),
      story: this.#lines,
    }
  }
}

/** The whole life of one grid. `isTold`: with a line for all that happens. */
export async function simulateGrid(seed: number, options: GridOptions = {}, isTold = false): Promise<GridOutcome> {
  await fetchLateParts()
  compileChecks()
  const dice = new Dice(Math.imul(seed, 0x9e3779b1) ^ 0x5eed)
  const drawn = gridScenario(seed, dice, options)
  const world = new World(options.play?.scenario(drawn) ?? drawn, dice, isTold)
  options.play?.direct(world)
  const live = async (): Promise<GridOutcome> => {
    await world.live()
    return world.outcome()
  }
  return seeded(dice, live, () => world.digestTime())
}
