import { availableParallelism } from 'node:os'
import type { GradientForm, PushedGradient } from '@starling-grid/model'
import {
  describeError,
  type ErrorCode,
  type GradientEncoding,
  GridError,
  type JobId,
  type MemberId,
  type MessageTo,
  named,
  type OnWire,
  type Push,
  type PushHeader,
  plainText,
  type RunEvent,
  type RunView,
  saltedDigest,
  type Sha256,
  type ShardRef,
  type StepRecord,
  type ToVolunteer,
  type CancelTimer,
  type WaitView,
} from '@starling-grid/protocol'
// One run: feeds what happens to the decisions (run/run.ts) and carries out what they answer. Owns the clock of the
// run, its journal, its parameter server and what the dashboard shows; decides nothing.
import { Audit } from '../audit/audit.ts'
import { type FollowTask, follow } from '../audit/recompute.ts'
import { StateDerivation } from '../audit/state-derivation.ts'
import { StepSums } from '../audit/step-sums.ts'
import type { BlobStore } from '../blobs/blob-store.ts'
import { inChunks } from '../blobs/stored.ts'
import type { CoordinatorClock } from '../clock.ts'
import { appendShards, type Job } from '../jobs/jobs.ts'
import type { JournalRow, StateStore } from '../journal/state-store.ts'
import { normsOf } from '../parameter-server/norm-clip.ts'
import { ParameterServer } from '../parameter-server/parameter-server.ts'
import type { ShardProcesses } from '../parameter-server/shard-processes.ts'
import { grantedPush, pushRefusal, type PushRefusal, UNGRANTED } from '../run/async/leases.ts'
import { createRunState } from '../run/create.ts'
import { makesRounds } from '../run/groups/group-policy.ts'
import { applyEntry, forgetChain } from '../run/journal-replay.ts'
import { mayRelay } from '../run/links/generation-links.ts'
import { appendedShards } from '../run/queue/appended.ts'
import { inertMembers } from '../run/ring/inert.ts'
import { decide, HalfDecided } from '../run/run.ts'
import type { Effect, RunInput, RunState } from '../run/state.ts'
import { baseSources, Introductions } from './introductions.ts'
import { causeOf, JournalRate, ROWS_PER_MINUTE } from './journal-rate.ts'
import type { KeptFiles } from './kept-files.ts'
import { OffRingSums } from './off-ring-sums.ts'
import { type Decided, Outbox } from './outbox.ts'
import { readPushBody } from './push-body.ts'
import { Refusals } from './refusals.ts'
import { type Past, pastOf, RunHistory } from './run-history.ts'
import { RunJournal } from './run-journal.ts'
import type { RunMeter } from './run-meter.ts'
import { type Presence, runView } from './run-view.ts'
import { ServerWork } from './server-work.ts'
import { ShardCheck } from './shard-check.ts'
import { Throughput } from './throughput.ts'
import { Versions } from './versions.ts'

/** ms between looks at the clock: far below the shortest time that a decision waits for */
const TICK_MS = 200
/** ms after the end of a run for which its history stays in memory: pages that watch it get its last points */
const RELEASE_MS = 2000
/** ms for which what was read of an ended run is kept: pages that come together cost one read */
const PAST_MS = 10_000
/** of which salts are made (run/proofs.ts): as long as a SHA-256 */
const SECRET_BYTES = 32

/** The volunteers of this run, reached through their sessions. */
export interface RunObserver {
  send(to: MemberId, message: OnWire<ToVolunteer>): void
  /** fatal: it is no member any more */
  refuse(
    job: JobId,
    to: MemberId,
    refusal: { readonly code: ErrorCode; readonly message: string; readonly fatal: boolean },
  ): void
  /** a member that asked to leave may go */
  dismiss(job: JobId, member: MemberId): void
  /** open sessions, of members and of those who prepare */
  present(): Iterable<Presence>
  /** links that are relayed now */
  relayedLinks(): number
}

/** Why a run waits for volunteers. */
export type WaitOf = (run: RunHost) => WaitView | null

export interface RunParts {
  readonly clock: CoordinatorClock
  readonly job: Job
  readonly store: StateStore
  readonly blobs: BlobStore
  readonly files: KeptFiles
  readonly audience: RunObserver
  readonly shardProcesses: ShardProcesses
  /** absent: nothing is counted for an operator */
  readonly meter?: RunMeter
  /** digest of the state that sums lead to; in a thread of its own where it is not given */
  readonly follow?: (task: FollowTask) => Promise<Sha256>
  /** something worth a line in the log of the process */
  readonly onTrouble: (text: string, job?: JobId) => void
  /** what happened to a run, as its page shows it; `member`: the name of the one that it is about */
  readonly onEvent?: (job: JobId, event: Omit<RunEvent, 'at'>, member?: string) => void
  /** where its pages find it, and the others; undefined: no other coordinator shares its store */
  readonly coordinators?: () => RunView['coordinators']
  /** another coordinator owns the run now */
  readonly onDeposed: (error: unknown) => void
  /** its end is durable, and its members were told */
  readonly onEnded: (run: RunHost) => void
  readonly waitOf: WaitOf
  /** its dataset has these shards, too */
  readonly onAppended: (run: RunHost, shards: readonly ShardRef[]) => void
  /** it paused: its volunteers may go to another job */
  readonly onParked: (run: RunHost) => void
}

export interface PushAnswer {
  readonly verdict: 'received' | ErrorCode
  readonly message: string
}

/** What an effect may need of the input that led to it. */
interface PushContext {
  readonly gradient: PushedGradient
  readonly answer: (answer: PushAnswer) => void
}

const LEAVING = {
  verdict: 'coordinator-leaving',
  message: 'this coordinator ends; ask again at the same address',
} as const

const NO_AUDIT = { every: 0, agreed: 0, differed: 0, notComputed: 0, off: null, last: null }

export class RunHost {
  readonly job: Job
  readonly state: RunState
  readonly history: RunHistory
  readonly versions: Versions
  readonly #offRingSums: OffRingSums
  readonly sums: StepSums
  readonly #parts: RunParts
  readonly #server: ParameterServer
  readonly #serverWork: ServerWork
  readonly #shardCheck: ShardCheck
  readonly #derivation: StateDerivation
  #audit: Audit | undefined
  readonly #journal: RunJournal
  readonly #outbox: Outbox<PushContext | undefined>
  readonly #refusals = new Refusals()
  readonly #introductions = new Introductions()
  readonly #journalRate: JournalRate
  readonly #relayed = new Throughput()
  readonly #openedAt: number
  #trouble: string | undefined
  /** another coordinator owns the run: nothing is decided any more */
  #deposedBy: unknown
  #stopTicking: CancelTimer = () => undefined
  #cancelRelease: CancelTimer = () => undefined
  #cancelForgetting: CancelTimer = () => undefined
  #past: Promise<Past> | undefined

  /**
   * R2: takes the run over as its journal has it in the same moment. @throws GridError 'disk-failed'; Error when the
   * journal contradicts itself
   */
  static async open(parts: RunParts): Promise<RunHost> {
    const host = new RunHost(parts)
    await parts.store.takeOver(parts.job.id, parts.clock.awake(), (rows) => host.#replay(rows))
    return host
  }

  // oxlint-disable-next-line max-lines-per-function -- the parts of a run, in the order of what they need
  private constructor(parts: RunParts) {
    const { job, blobs, files, clock } = parts
    this.#parts = { ...parts, onTrouble: (text) => parts.onTrouble(text, job.id) }
    this.#journalRate = new JournalRate(clock)
    this.#openedAt = clock.awake()
    this.job = job
    this.state = createRunState(job.config)
    this.history = new RunHistory(job.config)
    this.#server = new ParameterServer({
      form: job.form,
      clipNorm: job.spec.clipNorm,
      rounds: makesRounds(job.config.async.groups),
      delayCompensation: job.config.async.delayCompensation,
      cores: availableParallelism(),
      clock,
      answerMs: job.config.timing.threadAnswerMs,
      processes: parts.shardProcesses,
    })
    this.#offRingSums = new OffRingSums(job.form.layout, clock)
    this.versions = new Versions({
      clock,
      job,
      state: this.state,
      blobs,
      files,
      server: this.#server,
      onDamaged: (damaged) => this.feed({ type: 'checkpoint-damaged', ...damaged }),
    })
    this.sums = new StepSums({
      clock,
      length: job.form.layout.total,
      send: (to, message) => parts.audience.send(to, named(job.id, message)),
    })
    this.#derivation = new StateDerivation({
      clock,
      job,
      sums: this.sums,
      stateOf: (checkpoint) => this.versions.bytesOf(checkpoint),
      follow: parts.follow ?? ((task) => follow(task, clock)),
    })
    this.#serverWork = new ServerWork({
      server: this.#server,
      versions: this.versions,
      blobs,
      feed: (input) => this.feed(input),
      note: (text) => this.#note('run', text),
      onTrouble: (text) => this.#noteTrouble(text),
    })
    this.#shardCheck = new ShardCheck({ clock, job, blobs, feed: (input) => this.feed(input) })
    this.#journal = new RunJournal({
      job: job.id,
      store: parts.store,
      history: this.history,
      now: () => clock.awake(),
      meter: parts.meter,
      onTrouble: (text) => this.#noteTrouble(text),
    })
    this.#outbox = new Outbox({
      clock,
      append: (rows) => this.#journal.append(rows),
      onDurable: (rows) => this.#journal.durable(rows),
      carryOut: (effect, decided) => this.#carryOut(effect, decided),
      onDone: ({ context }) =>
        context?.answer({ verdict: 'message-unexpected', message: 'the push was not decided about' }),
      onAbandoned: ({ context }) => context?.answer(LEAVING),
      onTrouble: (error) => this.#troubled(error),
      onDefect: (error) => this.#defect(error),
      onDeposed: (error) => this.#deposed(error),
    })
  }

  #replay(rows: readonly JournalRow[]): void {
    this.#journal.replay(rows)
    for (const { entry, at } of rows) applyEntry(this.state, entry, at)
    this.history.noteRows(rows)
    appendShards(this.job, appendedShards(this.state))
  }

  /** R2: a restart opens a new ballot; the volunteers come back by themselves. */
  start(): void {
    const { job, state, versions, sums } = this
    this.#audit = new Audit({
      job,
      state,
      sums,
      clock: this.#parts.clock,
      stateOf: (checkpoint) => versions.bytesOf(checkpoint),
      shard: (name) => this.#shard(name),
      note: (kind, text) => this.#note(kind, text),
      onTrouble: this.#parts.onTrouble,
    })
    const secret = Buffer.from(crypto.getRandomValues(new Uint8Array(SECRET_BYTES))).toString('hex')
    this.feed({ type: 'coordinator-started', secret })
    if (this.state.finished === undefined)
      this.#stopTicking = this.#parts.clock.every(TICK_MS, () => this.feed({ type: 'tick' }))
    else this.#release()
  }

  /** Resolves when everything decided is durable, or cannot be. */
  async stop(): Promise<void> {
    this.#stopTicking()
    this.#cancelRelease()
    this.#cancelForgetting()
    await this.#outbox.close()
    await this.#server.unload()
  }

  /**
   * Its owner paused it, and it writes a checkpoint for a bounded time before its volunteers go: onParked says when.
   */
  get isParking(): boolean {
    return this.state.parking.asked !== undefined
  }

  /** Its members agree on another ring, or end the step before. */
  get isReforming(): boolean {
    const { phase } = this.state
    if (phase.type === 'ring') return phase.lastStep !== undefined
    return phase.type === 'freeze' || phase.type === 'form' || phase.type === 'handover' || phase.type === 'settle'
  }

  /** Members that do nothing hold no place of it. */
  get inert(): readonly MemberId[] {
    return inertMembers(this.state, this.#parts.clock.awake())
  }

  /** A volunteer is asked to go to another job. */
  noteMove(volunteer: MemberId, text: string): void {
    this.history.note('member', `${this.#nameOf(volunteer)} ${text}`, this.#parts.clock.awake())
  }

  /** Decided; `end` says whether it is durable, too. */
  get finished(): boolean {
    return this.state.finished !== undefined
  }

  /** By its owner. */
  get paused(): boolean {
    return this.state.paused
  }

  /** Under which this coordinator owns the run. */
  get fence(): number {
    return this.#journal.fence
  }

  /** Blobs that it needs. */
  blobs(): Sha256[] {
    const { initial, manifest, frozen } = this.job
    const shards = [...manifest.train, ...manifest.validation, ...frozen].map(({ sha256 }) => sha256)
    return [...shards, ...(initial === undefined ? [] : [initial]), ...this.versions.blobs()]
  }

  /** What volunteers are told of the end; undefined before it is durable (R1). */
  get end(): OnWire<MessageTo<'finished'>> | undefined {
    const { finished, chain } = this.state
    if (finished === undefined || this.history.finishedAt === undefined) return undefined
    return named(this.job.id, { type: 'finished', version: chain.head, reason: finished })
  }

  feed(input: RunInput, context?: PushContext): void {
    if (this.#deposedBy !== undefined) return context?.answer(LEAVING)
    const at = this.#parts.clock.awake()
    if (input.type === 'member-lost') this.#left(input, at)
    const effects = this.#decide(input, at)
    if (effects.length > 0 || context !== undefined) this.#outbox.add({ effects, at, context })
    if (!this.#journalRate.pays(input, effects)) this.#cutOff(input)
  }

  /** What was decided stays decided; the member that led to so many rows of the journal leads to no more. */
  #cutOff(input: RunInput): void {
    const member = causeOf(input)
    if (member === undefined) return
    const message = `expected at most ${ROWS_PER_MINUTE} journal rows a minute of a member, got more; join again later`
    this.refused('rate-exceeded', `${this.#nameOf(member)}: ${message}`, this.#nameOf(member))
    this.#parts.audience.refuse(this.job.id, member, { code: 'rate-exceeded', message, fatal: true })
  }

  #decide(input: RunInput, at: number): readonly Effect[] {
    try {
      return decide(this.state, input, at).effects
    } catch (error) {
      const half = error instanceof HalfDecided
      this.#defect(half ? error.cause : error, input)
      return half ? error.effects : []
    }
  }

  /** @throws GridError 'coordinator-leaving' when another coordinator owns the run */
  requireOwned(): void {
    if (this.#deposedBy !== undefined) throw new GridError(LEAVING.verdict, LEAVING.message)
  }

  /** What its last grant asks for; undefined: what the job says. */
  grantedEncoding(member: MemberId): GradientEncoding | undefined {
    return this.state.members.get(member)?.granted?.encoding
  }

  /** The push that a header announces; or why it would not be taken now, whatever it holds, which is counted. */
  announcedPush(header: PushHeader): Push | PushRefusal {
    const push = grantedPush(this.state, header)
    const refusal = push === undefined ? UNGRANTED : pushRefusal(this.state, push, this.#parts.clock.awake())
    if (refusal !== undefined) this.refused(refusal.verdict, `a push: ${refusal.message}`)
    return refusal ?? push ?? UNGRANTED
  }

  /** The bytes of a sum that this member is to contribute to a step of the ring (A1), while they are kept for it. */
  givenSum(member: MemberId, id: string): Uint8Array | undefined {
    const { given } = this.state.offRing
    return given?.to === member && String(given.id) === id ? this.#offRingSums.bytes(given.id) : undefined
  }

  /**
   * Answered when it is durable; `body` has the announced form. @throws GridError 'gradient-shape',
   * 'gradient-not-finite'
   */
  async push(push: Push, body: Uint8Array, form: GradientForm): Promise<PushAnswer> {
    const { gradient, digest: gradDigest } = await readPushBody(
      body,
      { form, layout: this.job.form.layout },
      this.#parts.clock,
    )
    const norms =
      this.state.phase.type === 'ring' || this.state.phase.type === 'async'
        ? normsOf(gradient, push.targets)
        : undefined
    return new Promise((answer) =>
      this.feed({ type: 'push', push, gradDigest, ...(norms ? { norms } : {}) }, { gradient, answer }),
    )
  }

  /** Of the committed chain, as far as it is durable, from the record that made version `from` on. */
  records(from: number, limit: number): Promise<readonly StepRecord[]> {
    return this.#parts.store.records(this.job.id, from, limit)
  }

  view(): RunView {
    const { job, state, history } = this
    return runView({
      job,
      state,
      history,
      present: this.#parts.audience.present(),
      relay: this.#relay(),
      audit: this.#audit?.view ?? NO_AUDIT,
      refusals: this.#refusals.byCode,
      trouble: this.#trouble,
      wait: this.#parts.waitOf(this),
      coordinators: this.#parts.coordinators?.(),
      now: this.#parts.clock.awake(),
      processStartedAt: this.#openedAt,
    })
  }

  /** Neighbours of a generation, and those that fetch state from each other, may open links. */
  mayTalk(a: MemberId, b: MemberId): boolean {
    return this.#introductions.mayTalk(a, b, this.#parts.clock.awake())
  }

  /**
   * Members that have the base of the job, for a newcomer that prepares: those that said that they are ready, and
   * newcomers that fetch it. Which of them turns with the newcomer, so that a herd spreads over them.
   */
  baseSources(newcomer: MemberId, isHere: (id: MemberId) => boolean): readonly MemberId[] {
    const at = this.#parts.clock.awake()
    const fetching = this.#introductions.seekersBefore(newcomer, at).filter(isHere)
    const sources = baseSources(newcomer, { members: [...this.state.members.values()], fetching })
    this.#introductions.sought(newcomer, sources, at)
    return sources
  }

  /** R18: neighbours of the present generation whose link is to go through us. */
  mayRelay(a: MemberId, b: MemberId): boolean {
    return mayRelay(this.state, a, b)
  }

  countRelayed(bytes: number): void {
    this.#relayed.add(bytes, this.#parts.clock.awake())
    this.#parts.meter?.relayed(bytes)
  }

  async #shard(name: Sha256): Promise<Uint8Array> {
    const bytes = await this.#parts.blobs.get(name)
    if (bytes === undefined)
      throw new GridError(
        'shard-corrupt',
        `expected shard ${name} in the data folder, got no file; import the dataset again`,
      )
    return bytes
  }

  #relay(): RunView['relay'] {
    const links = this.finished ? 0 : this.#parts.audience.relayedLinks()
    return { links, bytes: this.#relayed.total, bytesPerSecond: this.#relayed.perSecond(this.#parts.clock.awake()) }
  }

  #carryOut(effect: Effect, { at, context }: Decided<PushContext | undefined>): Promise<void> | void {
    switch (effect.type) {
      case 'journal': // durable already: the outbox wrote it first
        this.#audit?.advanced()
        if (effect.entries.some(({ type }) => type === 'checkpoint'))
          void this.versions.tidy().catch((error: unknown) => this.#parts.onTrouble(describeError(error)))
        return
      case 'append-shards':
        appendShards(this.job, effect.shards)
        return this.#parts.onAppended(this, effect.shards)
      case 'send':
        this.#introductions.told(effect.to, effect.message, at)
        return this.#parts.audience.send(effect.to, named(this.job.id, effect.message))
      case 'refuse':
        this.refused(effect.code, `${this.#nameOf(effect.to)}: ${effect.message}`, this.#nameOf(effect.to))
        return this.#parts.audience.refuse(this.job.id, effect.to, {
          code: effect.code,
          message: effect.message,
          fatal: !this.state.members.has(effect.to),
        })
      case 'dismiss':
        return this.#parts.audience.dismiss(this.job.id, effect.member)
      case 'note':
        return this.#note(effect.kind, effect.text, at)
      case 'ended':
        return this.#end()
      case 'parked':
        return this.#parts.onParked(this)
      case 'check-blocks':
        return void this.#shardCheck
          .check(effect.blocks)
          .catch((error: unknown) => this.#parts.onTrouble(describeError(error)))
      case 'derive-state':
        return void this.#derivation
          .derive(effect)
          .then((derived) => this.feed({ type: 'state-derived', version: effect.version, derived }))
      case 'digest-checkpoint':
        return void this.#digestCheckpoint(effect).catch((error: unknown) =>
          this.#parts.onTrouble(describeError(error)),
        )
      case 'server-load':
      case 'server-add':
      case 'server-close':
      case 'server-checkpoint':
      case 'server-unload':
        return this.#serverWork.carryOut(effect, context?.gradient)
      case 'off-ring-add':
        return this.#offRingSums.add(gradientIn(context), effect.weights)
      case 'off-ring-give':
        return this.#offRingSums.give(effect.id)
      case 'off-ring-forget':
        return this.#offRingSums.forget(effect.open)
      case 'push-verdict':
        if (effect.verdict !== 'received') this.refused(effect.verdict, `a push: ${effect.message}`)
        return context?.answer({ verdict: effect.verdict, message: effect.message })
      default:
        effect satisfies never
    }
  }

  /** Beside the event loop, chunk by chunk. @throws GridError 'version-corrupt', 'disk-failed' */
  async #digestCheckpoint({ version, salt }: Extract<Effect, { type: 'digest-checkpoint' }>): Promise<void> {
    const stored = await this.versions.state(version.id)
    if (stored === undefined) return
    const digest = await saltedDigest(inChunks(stored.open(0, stored.bytes - 1)), salt)
    this.feed({ type: 'checkpoint-digested', salt, digest })
  }

  /** Counted; now and then it is also an event. */
  refused(code: ErrorCode, what: string, member?: string): void {
    this.#parts.meter?.refused(code)
    const now = this.#parts.clock.awake()
    if (!this.#refusals.count(code, now)) return
    const text = `refused (${code}): ${what}`
    this.history.note('refusal', text, now)
    this.#parts.onEvent?.(this.job.id, { kind: 'refusal', text: plainText(text) }, member)
  }

  #note(kind: RunEvent['kind'], text: string, at = this.#parts.clock.awake()): void {
    this.history.note(kind, text, at)
    this.#parts.onEvent?.(this.job.id, { kind, text: plainText(text) })
  }

  #left({ member, reason, expected }: Extract<RunInput, { type: 'member-lost' }>, at: number): void {
    const known = this.state.members.get(member)
    if (known === undefined) return
    this.history.left(known, { reason, expected }, at)
    const text = plainText(`${known.name} left: ${reason}`)
    this.#parts.onEvent?.(this.job.id, { kind: 'member', text }, known.name)
    this.#introductions.left(member, at)
  }

  /** Its request came behind the end of its socket: a browser sends them over connections of their own. */
  saidGoodbye(member: MemberId): void {
    const name = this.history.leftByGoodbye(member)
    if (name !== undefined) this.#note('member', `${name} had said that it leaves`)
  }

  #nameOf(id: MemberId): string {
    return this.state.members.get(id)?.name ?? id.slice(0, 8)
  }

  /** Told in the order of the outbox: no row is on its way. */
  async #end(): Promise<void> {
    this.#stopTicking()
    await this.#journal.append([], true)
    this.#cancelRelease = this.#parts.clock.timer(RELEASE_MS, () => this.#release())
    this.#parts.onEnded(this)
  }

  /** A coordinator that has run a thousand jobs keeps a thousand summaries. */
  #release(): void {
    this.#journal.release()
    forgetChain(this.state)
  }

  /** What pages draw; of a run that ended it is read from the journal, once for all who ask within a while. */
  past(): Promise<Past> {
    if (!this.history.isReleased) return Promise.resolve(this.history)
    this.#past ??= this.#readPast()
    return this.#past
  }

  async #readPast(): Promise<Past> {
    this.#cancelForgetting()
    this.#cancelForgetting = this.#parts.clock.timer(PAST_MS, () => {
      this.#past = undefined
    })
    const { steps, validations, events } = await this.#parts.store
      .load(this.job.id)
      .then((rows) => pastOf(this.job.config, rows))
      .catch((error: unknown) => this.#withoutPast(error))
    return { steps, validations, events: [...events, ...this.history.events] }
  }

  #withoutPast(error: unknown): Past {
    this.#noteTrouble(`the curves of this run cannot be read: ${describeError(error)}`)
    return { steps: [], validations: [], events: [] }
  }

  /** The disk fails: the run pauses by itself, because nothing leaves; named once, and once more when it is over. */
  #troubled(error: unknown): void {
    const before = this.#trouble
    this.#trouble = error === undefined ? undefined : `paused: ${describeError(error)}`
    if (this.#trouble === before) return
    this.#noteTrouble(this.#trouble ?? 'the disk works again; the run goes on')
  }

  #deposed(error: unknown): void {
    this.#stopTicking()
    this.#deposedBy = error
    this.#trouble = `stopped: ${describeError(error)}`
    this.history.note('run', this.#trouble, this.#parts.clock.awake())
    this.#parts.onDeposed(error)
  }

  #noteTrouble(text: string): void {
    this.history.note('run', text, this.#parts.clock.awake())
    this.#parts.onTrouble(text)
  }

  /** A defect of ours that an input revealed: it costs them their place, not the others the run. */
  #defect(error: unknown, input?: RunInput): void {
    this.#noteTrouble(`defect: ${error instanceof Error ? error.stack : String(error)}`)
    if (input === undefined || !('member' in input) || typeof input.member !== 'string' || input.type === 'member-lost')
      return
    this.#parts.audience.refuse(this.job.id, input.member, {
      code: 'message-unexpected',
      message: 'the coordinator could not take this message',
      fatal: true,
    })
  }
}

function gradientIn(context: PushContext | undefined): PushedGradient {
  if (context === undefined) throw new Error('internal: a push without its gradient')
  return context.gradient
}
