// The production decisions on virtual time, with what they cost in real time. The CPU of deciding and of reading and
// writing messages is measured while the model runs. The parameter server and the network card are queues with a rate.
import {
  applyEntry,
  createRunState,
  decide,
  DEFAULT_TIMING,
  type Effect,
  type RunInput,
  type RunState,
} from '@starling-grid/coordinator/run'
import {
  genesis,
  jobId,
  type MemberId,
  type MessageTo,
  type Push,
  type Sha256,
  sha256Name,
  type StepRecord,
  type ToVolunteer,
  type VersionRef,
} from '@starling-grid/protocol'
import type { EventClock } from './clock.ts'
import { DataOfMembers } from './data.ts'
import { pullBytesOf, pushBytesOf, type Setting } from './setting.ts'

/** As in coordinator/src/host/run-host.ts. */
const TICK_MS = 200
/** ms of one append with its fsync */
const FSYNC_MS = 1
/** The coordinator's line: 1 Gbit/s. */
const COORDINATOR_BYTES_PER_MS = 125_000
/** Bytes of gradient that the parameter server takes in a ms: clip, optimizer and copy on one core. */
const APPLY_BYTES_PER_MS = 400_000
/** Blocks of an epoch: more than any run of the model uses up. */
const BLOCKS = 1_000_000

/** Of a setting that names its blocks: more than any run makes. */
const EPOCHS = 10_000

/** What members learn, where it is computed as well; without one only time passes. */
export interface ModelLearner {
  granted(member: MemberId, grant: MessageTo<'grant'>): void
  /** norms of what this member pushes now */
  pushed(push: Push): { readonly gradient: number; readonly statistics: number }
  /** it joined the open sum */
  added(push: Push, damping: number): void
  closed(record: StepRecord, version: VersionRef, at: number): void
}

export interface ScalingObserver {
  hear(member: MemberId, message: ToVolunteer): void
  dismissed(member: MemberId): void
}

export class ModelCoordinator {
  readonly state: RunState
  samples = 0
  /** every commit: virtual ms, and samples so far */
  readonly commits: { readonly at: number; readonly samples: number }[] = []
  cpuMs = 0
  bytes = 0
  ballots = 0
  /** rounds whose push was taken: virtual ms from grant to push, and what a sample counts: less where it came late */
  readonly rounds: {
    readonly from: number
    readonly to: number
    readonly samples: number
    readonly weight: number
  }[] = []
  /** of the push whose decision is under way, once it joined the open sum */
  #weight: number | undefined
  readonly #clock: EventClock
  readonly #setting: Setting
  readonly #audience: ScalingObserver
  readonly #learner: ModelLearner | undefined
  /** whose decision is under way */
  #pushing: Push | undefined
  #lineFreeAt = 0
  #dataFreeAt = 0
  #serverFreeAt = 0
  readonly data: DataOfMembers

  constructor(clock: EventClock, setting: Setting, audience: ScalingObserver, learner?: ModelLearner) {
    this.#learner = learner
    const job = jobId('scaling')
    this.#clock = clock
    this.#setting = setting
    this.data = new DataOfMembers(setting)
    this.#audience = audience
    this.state = createRunState({
      job,
      genesis: genesis(job, 'model', setting.seed),
      seed: setting.seed,
      blocks: setting.blocks ?? BLOCKS,
      ...(setting.shardBlocks === undefined ? {} : { shardBlocks: setting.shardBlocks }),
      validationBlocks: 0,
      batchBlocks: setting.batchBlocks,
      ...(setting.weak === undefined ? {} : { weak: setting.weak }),
      blockSamples: setting.blockSamples,
      epochs: setting.blocks === undefined ? 1 : EPOCHS,
      stop: {},
      evaluate: {},
      keep: {},
      roundSteps: setting.roundSteps,
      minVolunteers: setting.minVolunteers,
      mode: setting.mode,
      exchange: { asked: setting.exchange, bytes: setting.exchangeBytes },
      roundBytes: { push: pushBytesOf(setting), pull: pullBytesOf(setting) },
      versionBytes: 0,
      timing: DEFAULT_TIMING,
      async: setting.async,
    })
    applyEntry(this.state, { type: 'fence', fence: 1 }, 0)
    this.feed({ type: 'coordinator-started', secret: '' })
    this.#tick()
  }

  /** A decision, and what follows from it after its fsync. */
  feed(input: RunInput): void {
    const began = performance.now()
    const { effects } = decide(this.state, input, this.#clock.now)
    this.cpuMs += performance.now() - began
    let delay = 0
    for (const effect of effects) {
      if (effect.type === 'journal') delay += FSYNC_MS
      this.#carryOut(effect, delay + this.#addingMs)
    }
  }

  /** A message that came over the wire. */
  receive(input: RunInput, message: object): void {
    const text = JSON.stringify(message)
    const began = performance.now()
    JSON.parse(text)
    this.cpuMs += performance.now() - began
    this.bytes += text.length
    this.feed(input)
  }

  /** A push that came over the wire, of blocks that were granted then. */
  receivePush(push: Push, from: number): void {
    this.#weight = undefined
    this.#pushing = push
    const norms = this.#learner?.pushed(push) ?? { gradient: 1, statistics: 1 }
    this.receive({ type: 'push', push, gradDigest: digestOf(push.base), norms }, push)
    const weight = this.#weight
    if (weight !== undefined) this.rounds.push({ from, to: this.#clock.now, samples: push.samples, weight })
  }

  /** Bulk through the coordinator's line; calls back when the last byte is through. */
  transfer(bytes: number, then: () => void): void {
    this.bytes += bytes
    this.#lineFreeAt = Math.max(this.#lineFreeAt, this.#clock.now) + bytes / COORDINATOR_BYTES_PER_MS
    this.#clock.after(this.#lineFreeAt - this.#clock.now, then)
  }

  /** Of the data: it shares the line with all else, which is little and overtakes it. */
  transferData(bytes: number, then: () => void): void {
    this.bytes += bytes
    this.#dataFreeAt = Math.max(this.#dataFreeAt, this.#clock.now) + bytes / COORDINATOR_BYTES_PER_MS
    this.#clock.after(this.#dataFreeAt - this.#clock.now, then)
  }

  #tick(): void {
    this.#clock.after(TICK_MS, () => {
      this.feed({ type: 'tick' })
      this.#tick()
    })
  }

  #carryOut(effect: Effect, delay: number): void {
    switch (effect.type) {
      case 'journal':
        for (const entry of effect.entries) {
          if (entry.type === 'commit' || entry.type === 'start') this.#committed(entry.records)
          if (entry.type === 'ballot') this.ballots++
        }
        return
      case 'send':
        if (effect.message.type === 'grant') this.#learner?.granted(effect.to, effect.message)
        return this.#send(effect.to, effect.message, delay)
      case 'dismiss':
        return this.#clock.after(delay, () => this.#audience.dismissed(effect.member))
      case 'digest-checkpoint':
        return this.#clock.after(0, () =>
          this.feed({ type: 'checkpoint-digested', salt: effect.salt, digest: effect.version.id as never }),
        )
      case 'server-add':
        this.#weight = effect.damping
        if (this.#pushing !== undefined) this.#learner?.added(this.#pushing, effect.damping)
        if (this.#setting.addMs !== undefined) this.#serverWorks(this.#setting.addMs)
        return
      case 'server-close':
        this.#learner?.closed(effect.record, effect.version, this.#clock.now)
        return this.#serverWorks(this.#setting.gradientBytes / APPLY_BYTES_PER_MS)
      case 'server-checkpoint':
        return this.#clock.after(this.#setting.stateBytes / APPLY_BYTES_PER_MS, () => this.#written(effect.version))
      default:
    }
  }

  #committed(records: readonly StepRecord[]): void {
    for (const record of records) this.samples += record.samples
    if (records.length > 0) this.commits.push({ at: this.#clock.now, samples: this.samples })
  }

  /** ms until the parameter server is through with what it has. */
  get serverQueueMs(): number {
    return Math.max(0, this.#serverFreeAt - this.#clock.now)
  }

  #serverWorks(ms: number): void {
    this.#serverFreeAt = Math.max(this.#serverFreeAt, this.#clock.now) + ms
  }

  /** ms until pushes are taken in: as in coordinator/src/host/outbox.ts, no later effect leaves before. */
  get #addingMs(): number {
    return this.#setting.addMs === undefined ? 0 : this.serverQueueMs
  }

  #written(version: VersionRef): void {
    this.feed({ type: 'server-checkpoint', version, blob: version.id as never, bytes: this.#setting.stateBytes })
  }

  #send(to: MemberId, message: ToVolunteer, delay: number): void {
    const began = performance.now()
    this.bytes += JSON.stringify(message).length
    this.cpuMs += performance.now() - began
    this.#clock.after(delay + this.#setting.links.latencyMs, () => this.#audience.hear(to, message))
  }
}

/** Gradients never differ here. */
function digestOf({ id }: VersionRef): Sha256 {
  return sha256Name(id)
}
