// START HERE: one seed, one grid of production's own shells on virtual time: a coordinator over its journal, and
// volunteers, with faults between and in them. The invariants are those of docs/RULES.md.
import { createHash } from 'node:crypto'
import type { JournalRow } from '@starling-grid/coordinator/shell'
import { decodeVersionState } from '@starling-grid/model'
import { type Sha256, type StepRecord, type VersionRef } from '@starling-grid/protocol'
import { Chronicle } from './chronicle.ts'
import { CoordinatorProcess, Disk } from './coordinator-process.ts'
import { type Counts, noCounts } from './counts.ts'
import { Dice } from './dice.ts'
import { gridFault, type GridFault } from './faults.ts'
import type { Replica } from './history.ts'
import { genesisOf, type GridJob, gridJob } from './job.ts'
import { Ledger } from './ledger.ts'
import { checkReplay } from './replay.ts'
import { gridScenario, type GridScenario, type GridOptions } from './scenario.ts'
import { seeded } from './seeded.ts'
import { type Violation, Violations } from './violations.ts'
import { VirtualTime } from './virtual-time.ts'
import { VolunteerProcess } from './volunteer-process.ts'
import { Air } from './wires.ts'

/** I9: ms that a grid may take after its last fault */
const CALM_MS = 900_000
/** ms between looks at whether the run is over */
const LOOK_MS = 500
/** Codes that honest members are never answered with. */
const NEVER: ReadonlySet<string> = new Set([
  'message-malformed',
  'message-unexpected',
  'message-too-large',
  'identity-unproven',
  'model-hash',
  'rate-exceeded',
])

export interface GridOutcome {
  readonly scenario: GridScenario
  readonly violation: Violation | undefined
  readonly counts: Counts
  readonly records: readonly StepRecord[]
  /** virtual ms */
  readonly ms: number
  readonly events: number
  readonly faults: readonly GridFault[]
  /** SHA-256 of every durable row: equal for equal seeds */
  readonly fingerprint: string
}

export class World {
  readonly scenario: GridScenario
  readonly time = new VirtualTime()
  readonly dice: Dice
  readonly violations = new Violations(new Set())
  readonly job: GridJob
  readonly ledger: Ledger
  readonly air: Air
  readonly disk: Disk
  readonly counts = noCounts()
  readonly faults: GridFault[] = []
  readonly #chronicle: Chronicle
  readonly #outside = this.time.process()
  readonly #volunteers = new Map<number, VolunteerProcess>()
  /** generation and version → its id */
  readonly #made = new Map<string, VersionRef>()
  readonly #fingerprint = createHash('sha256')
  coordinator: CoordinatorProcess | undefined

  constructor(scenario: GridScenario, dice: Dice) {
    this.scenario = scenario
    this.dice = dice
    this.job = gridJob(scenario.shape)
    this.ledger = new Ledger(this.job, scenario.shape.blocks, this.violations)
    this.disk = new Disk(scenario.diskMs)
    this.air = new Air(dice, (a, b) => this.coordinator?.mayTalk(a, b) ?? false)
    const config = { blocks: scenario.shape.blocks, epochs: scenario.shape.epochs, mode: scenario.shape.mode }
    this.#chronicle = new Chronicle(
      { ...config, genesis: genesisOf(this.job) },
      {
        history: this.ledger,
        violations: this.violations,
        counts: this.counts,
        replicaOf: (blob) => this.#replicaOf(blob),
      },
    )
    this.disk.onRows = (rows) => this.#durable(rows)
  }

  async run(): Promise<void> {
    await this.disk.store.createJob(this.job.stored)
    for (const bytes of this.job.shards.values()) await this.disk.blobs.put(bytes)
    this.startCoordinator()
    for (let seat = 0; seat < this.scenario.seats; seat++)
      this.#outside.timer(this.dice.between(0, 4000), () => this.arrive(seat))
    this.#outside.timer(this.scenario.faultEveryMs, () => this.#strike())
    await this.time.run(() => this.#isOver, this.scenario.faults * this.scenario.faultEveryMs * 2 + CALM_MS)
    if (!this.#isOver) this.violations.report('I9', `not finished ${CALM_MS / 1000} s after the last fault`)
    await this.#checkReplay()
    for (const volunteer of this.#volunteers.values()) volunteer.kill()
    this.coordinator?.kill()
  }

  get #isOver(): boolean {
    return this.violations.first !== undefined || this.#chronicle.finished
  }

  get volunteers(): readonly VolunteerProcess[] {
    return [...this.#volunteers.values()].filter(({ isAlive }) => isAlive)
  }

  arrive(seat: number): void {
    if (this.#chronicle.finished) return
    const volunteer = new VolunteerProcess(this, seat)
    this.#volunteers.set(seat, volunteer)
    volunteer.start()
  }

  /** In the place of one that died, or against one that lives. */
  startCoordinator(): void {
    const coordinator: CoordinatorProcess = new CoordinatorProcess({
      time: this.time,
      disk: this.disk,
      dice: this.dice,
      timing: this.scenario.timing,
      onRefused: (code, what) => {
        if (NEVER.has(code)) this.violations.report('refusal', `${code}: ${what}`)
      },
      onTrouble: (text) => {
        if (/defect|cannot be opened|internal/.test(text)) this.violations.report('replay', text)
      },
      onDeposed: () => this.later(LOOK_MS, () => this.coordinator === coordinator && this.startCoordinator()),
    })
    this.coordinator = coordinator
    coordinator.start().catch((error: unknown) => this.#failedToStart(coordinator, error))
  }

  /** Its disk failed: it is started again by hand. */
  #failedToStart(coordinator: CoordinatorProcess, error: unknown): void {
    if (!this.disk.fails(this.time.now))
      this.violations.report('replay', `a coordinator cannot start: ${String(error)}`)
    coordinator.kill()
    this.later(LOOK_MS, () => this.coordinator === coordinator && this.startCoordinator())
  }

  later(ms: number, act: () => void): void {
    this.#outside.timer(ms, act)
  }

  #strike(): void {
    if (this.faults.length >= this.scenario.faults || this.#isOver) return
    this.faults.push(gridFault(this))
    this.#outside.timer(this.dice.between(1, 2 * this.scenario.faultEveryMs), () => this.#strike())
  }

  /** I2: members of one generation that hold the same step hold the same version. */
  agree({ name }: VolunteerProcess, { generation, v }: StepRecord, version: VersionRef): void {
    const known = this.#made.get(`${generation} ${v}`)
    this.#made.set(`${generation} ${v}`, version)
    if (known !== undefined && known.id !== version.id)
      this.violations.report('I2', `${name} makes another version ${v} in generation ${generation} than others`)
  }

  #durable(rows: readonly JournalRow[]): void {
    for (const { entry } of rows) {
      this.#fingerprint.update(JSON.stringify(entry))
      this.#chronicle.observe(entry)
    }
  }

  #replicaOf(blob: Sha256): Replica | undefined {
    const bytes = this.disk.kept.get(blob)
    if (bytes === undefined) return undefined
    const { version, parameters } = decodeVersionState(bytes, this.job.form)
    const counts = this.ledger.counts(version)
    const isTrue = counts !== undefined && this.ledger.holds(version, parameters)
    return { version, counts: isTrue ? counts : new Float32Array(this.ledger.length).fill(Number.NaN) }
  }

  /** R1: when nothing waits for the disk, its rows make what the coordinator knows. */
  async #checkReplay(): Promise<void> {
    const run = this.coordinator?.runs.shown()
    if (run === undefined || this.violations.first !== undefined) return
    const rows = await this.disk.store.load(this.job.stored.id)
    checkReplay(this, { state: run.state }, rows)
  }

  outcome(): GridOutcome {
    return {
      scenario: this.scenario,
      violation: this.violations.first,
      counts: this.counts,
      records: this.#chronicle.records,
      ms: this.time.now,
      events: this.time.events,
      faults: this.faults,
      fingerprint: this.#fingerprint.digest('hex'),
    }
  }
}

/** The whole life of one grid. */
export async function simulateGrid(seed: number, options: GridOptions = {}): Promise<GridOutcome> {
  const dice = new Dice(Math.imul(seed, 0x9e3779b1) ^ 0x5eed)
  return seeded(dice, async () => {
    const world = new World(gridScenario(seed, dice, options), dice)
    await world.run()
    return world.outcome()
  })
}
