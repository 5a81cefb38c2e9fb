// One run of a simulated grid, seen from outside: its job, what each version must hold, and what the rows of its
// journal tell.
import { createHash } from 'node:crypto'
import type { JournalRow } from '@starling-grid/coordinator/shell'
import { decodeVersionState } from '@starling-grid/model'
import type { Sha256, StepRecord, VersionRef } from '@starling-grid/protocol'
import { Chronicle } from './chronicle.ts'
import type { Counts } from './counts.ts'
import type { Disk } from './disk.ts'
import type { Replica } from './history.ts'
import { genesisOf, type WorldJob } from './job.ts'
import { Ledger } from './ledger.ts'
import type { GridScenario } from './scenario.ts'
import type { Violations } from './violations.ts'

export interface Watching {
  readonly scenario: Pick<GridScenario, 'members' | 'defect'>
  readonly violations: Violations
  readonly counts: Counts
  readonly disk: Disk
}

export class WatchedRun {
  readonly job: WorldJob
  readonly genesis: VersionRef
  readonly ledger: Ledger
  readonly #world: Watching
  chronicle: Chronicle
  readonly #fingerprint = createHash('sha256')
  /** fence, generation and version → its id */
  readonly #made = new Map<string, VersionRef>()

  constructor(job: WorldJob, world: Watching) {
    this.#world = world
    this.job = job
    this.genesis = genesisOf(job)
    this.ledger = new Ledger(job, world)
    const { mode, weakScaling, batchBlocks } = job.spec
    // jobs of the world name their warm-up
    const weak = weakScaling && { warmup: weakScaling.warmup ?? 0, batchBlocks, lr: job.lr }
    this.chronicle = new Chronicle(
      {
        blocks: job.blocks,
        shards: job.manifest.train.length,
        epochs: job.epochs,
        mode,
        genesis: this.genesis,
        ...(weak ? { weak } : {}),
      },
      {
        history: this.ledger,
        isDamped: () => this.ledger.isDamped,
        violations: world.violations,
        counts: world.counts,
        replicaOf: (blob) => this.#replicaOf(blob),
      },
    )
  }

  get finished(): boolean {
    return this.chronicle.finished
  }

  durable(rows: readonly JournalRow[]): void {
    for (const { entry } of rows) {
      this.#fingerprint.update(JSON.stringify(entry))
      this.chronicle.observe(entry)
    }
  }

  /** The folder is an older one now. */
  restored(): void {
    this.chronicle = this.chronicle.restoredTo(this.#world.disk.rows(this.job.stored.id))
  }

  /**
   * I2: members of one generation that hold the same step hold the same version. `fence`: of its coordinator, since a
   * restored journal uses numbers of generations again.
   */
  agree(who: string, { generation, v }: StepRecord, { version, fence }: { version: VersionRef; fence: number }): void {
    const step = `${fence} ${generation} ${v}`
    const known = this.#made.get(step)
    this.#made.set(step, version)
    if (known !== undefined && known.id !== version.id)
      this.#world.violations.report('I2', `${who} makes another version ${v} in generation ${generation} than others`)
  }

  /** SHA-256 of all rows so far: equal for equal seeds. */
  get fingerprint(): string {
    return this.#fingerprint.copy().digest('hex')
  }

  #replicaOf(blob: Sha256): Replica | undefined {
    const bytes = this.#world.disk.kept.get(blob)
    if (bytes === undefined) return undefined
    const { version, parameters } = decodeVersionState(bytes, this.job.form)
    const counts = this.ledger.counts(version)
    const isTrue = counts !== undefined && this.ledger.holds(version, parameters)
    return { version, counts: isTrue ? counts : new Float32Array(this.ledger.length).fill(Number.NaN) }
  }
}
