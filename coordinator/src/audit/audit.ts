// Audits a committed step now and then (docs/decisions/0017): from a checkpoint, the data, and the sums of the steps
// since. A member sends these sums when they are committed. It decides nothing: what differs is said, with step and
// members.
import { randomInt } from 'node:crypto'
import { type AuditView, blockIndex, type MemberId, type RunEvent, type Sha256 } from '@starling-grid/protocol'
import type { CoordinatorClock } from '../clock.ts'
import type { Job } from '../jobs/jobs.ts'
import { stepsAfter } from '../run/ballot/derived-state.ts'
import { newestCheckpoint } from '../run/journal-replay.ts'
import type { Checkpoint, RunState, SumStep } from '../run/state.ts'
import { recompute, type Recomputed, TooLong } from './recompute.ts'
import type { StepSums } from './step-sums.ts'

/** Steps of which about one is audited where the job does not say. */
export const AUDIT_EVERY = 200
/** Steps after a checkpoint among which the audited one is drawn. */
const WITHIN = 8
/** Times an audit's own duration that pass before the next: 2 % of one core. */
const REST = 49
/** Bytes of shards that one audit reads. */
const MOST_SHARD_BYTES = 256 * 1024 * 1024
/** Members that are asked for sums, one after the other. */
const ASKED = 3

export interface AuditParts {
  readonly job: Job
  readonly state: RunState
  readonly sums: StepSums
  readonly clock: CoordinatorClock
  /** the whole state of a checkpoint with a blob */
  stateOf(checkpoint: Checkpoint): Promise<Uint8Array>
  shard(name: Sha256): Promise<Uint8Array>
  note(kind: RunEvent['kind'], text: string): void
  /** worth a line in the log of the process */
  onTrouble(text: string): void
}

/** A step that is to be audited once it is committed. */
interface DueAudit {
  readonly from: Checkpoint
  readonly v: number
}

export class Audit {
  readonly #parts: AuditParts
  readonly #every: number
  /** version up to which steps were counted, and audits that they are worth */
  #seen = 0
  #owed = 0
  #due: DueAudit | undefined
  #busy = false
  #notBefore = 0
  #off: string | null
  #counts = { agreed: 0, differed: 0, notComputed: 0 }
  #last: AuditView['last'] = null

  constructor(parts: AuditParts) {
    this.#parts = parts
    this.#every = parts.job.spec.audit ?? AUDIT_EVERY
    this.#off = this.#every === 0 ? 'the job wants none' : whyNever(parts)
    this.#seen = parts.state.chain.head.v
  }

  get view(): AuditView {
    return { every: this.#every, ...this.#counts, off: this.#off, last: this.#last }
  }

  /** The chain or the checkpoints changed. */
  advanced(): void {
    if (this.#off !== null || this.#busy) return
    this.#choose()
    const { state } = this.#parts
    if (this.#due === undefined || state.chain.head.v < this.#due.v || state.phase.type !== 'ring') return
    const due = this.#due
    this.#due = undefined
    this.#busy = true
    void this.#audit(due).finally(() => {
      this.#busy = false
    })
  }

  /** At each new checkpoint, with the probability that the steps since the one before are worth. */
  #choose(): void {
    const { state } = this.#parts
    const from = newestCheckpoint(state)
    if (this.#due !== undefined && this.#due.from.version.v > state.chain.head.v) this.#due = undefined
    if (from.blob === undefined || from.version.v <= this.#seen) return
    this.#owed += (from.version.v - this.#seen) / this.#every
    this.#seen = from.version.v
    if (this.#parts.clock.awake() < this.#notBefore || randomInt(1_000_000) >= 1_000_000 * this.#owed) return
    this.#owed = 0
    const last = Math.min(this.#parts.sums.most, Math.max(WITHIN, state.chain.head.v - from.version.v))
    this.#due = { from, v: from.version.v + randomInt(1, last + 1) }
  }

  async #audit(due: DueAudit): Promise<void> {
    const begun = this.#parts.clock.awake()
    try {
      const found = await this.#recomputed(due)
      if (found !== undefined) this.#told(due, found)
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error)
      if (error instanceof TooLong) this.#end(why)
      else this.#notComputed(due, why)
    }
    this.#notBefore = this.#parts.clock.awake() + REST * (this.#parts.clock.awake() - begun)
  }

  async #recomputed(due: DueAudit): Promise<Recomputed | undefined> {
    const { job, sums, stateOf } = this.#parts
    const steps = stepsAfter(this.#parts.state, due.from, due.v)
    if (steps === undefined) return this.#notComputed(due, 'the run went back')
    const records = steps.map(({ record }) => record)
    const why = records.some(({ kind }) => kind === 'async') ? "it is the parameter server's" : undefined
    if (why !== undefined) return this.#notComputed(due, why)
    const [answered, state] = await Promise.all([sums.ask(this.#members(), steps), stateOf(due.from)])
    if (answered === undefined) return this.#notComputed(due, 'no member has its sum any more')
    const shards = await this.#shardsOf(steps)
    const { terms } = job
    const task = { type: 'audit', terms, from: due.from.version, state, records, sums: answered.sums, shards } as const
    return recompute(task, this.#parts.clock)
  }

  /** Some of the ring, in an order that no member knows. */
  #members(): MemberId[] {
    const { phase } = this.#parts.state
    const left = phase.type === 'ring' ? [...phase.members] : []
    const drawn: MemberId[] = []
    while (left.length > 0 && drawn.length < ASKED) drawn.push(...left.splice(randomInt(left.length), 1))
    return drawn
  }

  /** Of the last step's blocks, and of the base model. */
  async #shardsOf(steps: readonly SumStep[]): Promise<ReadonlyMap<Sha256, Uint8Array>> {
    const { job, shard } = this.#parts
    const refs = (steps.at(-1)?.record.blocks ?? []).flatMap((block) => job.training.at(blockIndex(block))?.shard ?? [])
    const held = [...refs, ...job.frozen]
    const named = new Map(held.map((ref) => [ref.sha256, ref.bytes]))
    const bytes = [...named.values()].reduce((sum, one) => sum + one, 0)
    if (bytes > MOST_SHARD_BYTES) throw new Error(`expected files that fit the audit's memory, got ${bytes} bytes`)
    const read = await Promise.all([...named.keys()].map(async (name) => [name, await shard(name)] as const))
    return new Map(read)
  }

  #told({ v }: DueAudit, { deviation, fault, skipped }: Recomputed): void {
    if (skipped !== undefined) return this.#notComputed({ v }, skipped)
    const at = this.#parts.clock.awake()
    if (fault === undefined) {
      this.#counts.agreed++
      this.#last = { v, at, result: 'agreed', text: `differs by ${(deviation ?? 0).toPrecision(2)}` }
      return
    }
    this.#counts.differed++
    this.#last = { v, at, result: 'differed', text: fault }
    const text = `AUDIT: step ${v} is not what its record says: ${fault}; made by ${this.#makersOf(v)}`
    this.#parts.note('audit', text)
    this.#parts.onTrouble(text)
  }

  #makersOf(v: number): string {
    const { chain, rings, members } = this.#parts.state
    const record = chain.record(v)
    const ring = record === undefined ? [] : (rings.get(record.generation) ?? [])
    const names = ring.map((id) => members.get(id)?.name ?? id.slice(0, 8)).join(', ')
    return `generation ${record?.generation ?? 'unknown'} of ${names}; blocks ${record?.blocks.join(' ') ?? 'unknown'}`
  }

  #notComputed({ v }: Pick<DueAudit, 'v'>, why: string): undefined {
    this.#counts.notComputed++
    if (this.#last?.text !== why) this.#parts.note('audit', `step ${v} is not computed again: ${why}`)
    this.#last = { v, at: this.#parts.clock.awake(), result: 'not computed', text: why }
  }

  /** Said once. */
  #end(why: string): void {
    this.#off = why
    this.#parts.note('audit', `steps of this job are not audited: ${why}`)
  }
}

/** Why no step of this job can be audited. */
function whyNever({ job, sums }: AuditParts): string | null {
  const { encoding = 'f32', precision = 'f32' } = job.spec
  if (encoding !== 'f32' || precision !== 'f32') return 'its sums are encoded, or computed in f16'
  return sums.most < 1 ? 'its model is too large' : null
}
