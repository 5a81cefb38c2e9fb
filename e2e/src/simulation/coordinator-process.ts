// One coordinator process: sockets in, decisions of the real reducer, effects out in their order. It can die between
// any two effects; its state, its sockets and its parameter server die with it, the journal and the blobs stay.
import {
  applyEntry,
  decide,
  type Effect,
  type JournalEntry,
  replay,
  type RunInput,
  type RunState,
} from '@starling-grid/coordinator/run'
import {
  type BlockId,
  digest,
  type MemberId,
  type MessageFrom,
  type MessageTo,
  PLAN_WINDOW,
  type Push,
  type Sha256,
  type ToCoordinator,
  type VersionRef,
} from '@starling-grid/protocol'
import type { Row } from '../world/chronicle.ts'
import type { Chronicle } from '../world/chronicle.ts'
import { digestOf, plus, type Replica, saltedDigestOf } from '../world/history.ts'
import { checkReplay } from '../world/replay.ts'
import type { Connection, CoordinatorEnd } from './connection.ts'
import type { Context } from './context.ts'
import { type Decided, Disk, type DiskUser } from './disk.ts'
import { type Journal, snapshotted } from './journal.ts'
import { ParameterServer } from './parameter-server.ts'

/** ms that reading a file takes at most */
const LOOK_MS = 500
/** Counted blocks have no norm that says anything. */
const SIMULATED_NORMS = { gradient: 1, statistics: 0 }

export interface Records {
  readonly journal: Journal
  readonly chronicle: Chronicle
  readonly blobs: Map<Sha256, Replica>
  /** Looks at every entry before it is carried out. */
  watch(process: CoordinatorProcess, entry: JournalEntry): void
  /** Looks at every FORM as it leaves. */
  formed(process: CoordinatorProcess, order: MessageTo<'form'>): void
  /** The run paused: its members go to another job. */
  switchJob(process: CoordinatorProcess): void
}

export class CoordinatorProcess implements CoordinatorEnd, DiskUser {
  readonly name: string
  readonly disk: Disk
  readonly state: RunState
  readonly sessions = new Map<MemberId, Connection>()
  readonly #context: Context
  readonly #records: Records
  readonly #connections = new Set<Connection>()
  readonly #server: ParameterServer
  /** Σ gradients of off-ring members (A1); they die with the process */
  #offRingSums: {
    open: Float32Array | undefined
    given: { readonly id: number; readonly sum: Float32Array } | undefined
  } = { open: undefined, given: undefined }
  #fence: number
  #parkedAt = 0
  /** the next decision with two effects or more is its last, and is cut */
  doomed = false
  alive = true
  listens = false

  constructor(context: Context, records: Records, number: number) {
    this.name = `c${number}`
    this.#context = context
    this.#records = records
    this.#fence = this.#isNaive ? records.journal.fence : this.#takeOver().fence
    this.state = this.#restored()
    this.#server = new ParameterServer(context, records)
    this.disk = new Disk(context, this)
  }

  /** From a snapshot and the rows behind it, at another place each time: what all rows together make. */
  #restored(): RunState {
    const { config, mutant } = this.#context.scenario
    const { entries, fence } = this.#records.journal
    const place = (7 * fence + 3 * entries.length) % (entries.length + 1)
    const state = replay(config, snapshotted(config, entries, place, mutant === 'forgets-in-snapshots'))
    checkReplay(this.#context, { state }, entries)
    return state
  }

  /** R2: in one transaction, before anything is read. */
  #takeOver(): Extract<JournalEntry, { type: 'fence' }> {
    const taken = this.#records.journal.takeOver(this.#context.agenda.now)
    this.#records.chronicle.observe(taken)
    return taken
  }

  get #isNaive(): boolean {
    return this.#context.scenario.mutant === 'reads-before-fence'
  }

  /** It has read its journal and listens. */
  start(): void {
    if (!this.alive) return
    if (this.#isNaive) {
      const taken = this.#takeOver()
      this.#fence = taken.fence
      applyEntry(this.state, taken, this.#context.agenda.now)
    }
    this.listens = true
    if (this.state.mode === 'async') this.#context.counts.serverRestarts++
    this.decide({ type: 'coordinator-started', secret: this.name })
  }

  /** It owns the journal: what members do now is measured against its chain. */
  get current(): boolean {
    return this.alive && this.#fence === this.#records.journal.fence
  }

  die(why: string): void {
    if (!this.alive) return
    this.alive = false
    this.#context.trace(() => `${this.name} dies: ${why}`)
    for (const connection of this.#connections) connection.break()
  }

  connected(connection: Connection): void {
    this.#connections.add(connection)
  }

  closed(connection: Connection): void {
    this.#connections.delete(connection)
    this.#lost(connection, 'the socket broke', false)
  }

  received(connection: Connection, message: ToCoordinator): void {
    const member = connection.member.id
    if (message.type === 'hello') return this.#welcome(connection, message)
    if (this.sessions.get(member) !== connection) return
    switch (message.type) {
      case 'leave':
        return this.decide({ type: 'member-leaving', member })
      case 'ready':
      case 'heartbeat':
        return
      default:
        return this.decide({ type: 'message', member, message })
    }
  }

  /** Another job gets the members. */
  park(): void {
    this.#parkedAt = this.#context.agenda.now
    if (this.#context.scenario.mutant === 'parks-without-checkpoint') this.#records.switchJob(this)
    else this.decide({ type: 'park', reason: 'another job was submitted' })
  }

  /** A shell found that a checkpoint's bytes are gone. */
  damaged(version: VersionRef, neededBy: 'server' | 'reader'): void {
    if (this.#context.scenario.mutant !== 'keeps-damaged-checkpoints')
      this.decide({ type: 'checkpoint-damaged', version, problem: 'its bytes are gone', neededBy })
  }

  get parkedInTime(): boolean {
    return this.#context.agenda.now - this.#parkedAt < this.#context.scenario.config.timing.parkMs
  }

  tick(): void {
    this.decide({ type: 'tick' })
  }

  pushed(push: Push, gradient: Float32Array): boolean {
    if (!this.alive) return false
    const finite = gradient.every(Number.isFinite)
    if (finite)
      this.decide(
        { type: 'push', push, gradDigest: digest(new Uint8Array(gradient.buffer)), norms: SIMULATED_NORMS },
        gradient,
      )
    else this.decide({ type: 'push-refused', push, code: 'gradient-not-finite' })
    return this.alive
  }

  offRingSum(id: number): Float32Array | undefined {
    return this.alive && this.#offRingSums.given?.id === id ? this.#offRingSums.given.sum : undefined
  }

  uploaded(member: MemberId, replica: Replica): void {
    if (!this.alive) return
    const blob = digestOf(replica)
    this.#records.blobs.set(blob, replica)
    this.decide({ type: 'uploaded', member, version: replica.version, blob, bytes: replica.counts.byteLength })
  }

  decide(input: RunInput, gradient?: Float32Array): void {
    if (!this.alive || !this.listens) return
    const before = {
      phase: this.state.phase.type,
      generation: this.state.generation,
      given: this.state.offRing.given?.blocks ?? [],
    }
    const { effects } = decide(this.state, input, this.#context.agenda.now)
    if (before.phase === 'lost' && this.state.phase.type !== 'lost' && this.state.generation === before.generation)
      this.#context.counts.lateReturns++
    if (this.state.offRing.given === undefined && before.given.every((block) => this.state.chain.isDone(block)))
      this.#context.counts.offRingBlocks += before.given.length
    for (const effect of effects)
      if (effect.type === 'journal') for (const entry of effect.entries) this.#records.watch(this, entry)
    if (effects.length > 0) this.disk.add({ effects, at: this.#context.agenda.now, gradient })
    this.#context.touched()
  }

  /**
   * R1: the rows of all that is decided come first. Then the rest leaves, in its order, or as much of it as the process
   * lives for.
   */
  carryOut({ effects, gradient }: Decided): void {
    const cut = this.doomed && effects.length > 1 ? this.#context.dice.between(1, effects.length - 1) : effects.length
    for (const effect of effects.slice(0, cut)) if (this.alive) this.#carryOut(effect, gradient)
    if (cut === effects.length || !this.alive) return
    this.#context.counts.faults['crash-between-effects']++
    this.die(`between two of ${effects.length} effects, after ${cut}`)
  }

  #carryOut(effect: Effect, gradient: Float32Array | undefined): void {
    switch (effect.type) {
      case 'journal': // durable already
        return
      case 'send':
        if (effect.message.type === 'form') this.#records.formed(this, effect.message)
        if (effect.message.type === 'form' && effect.message.records.length > 2 * PLAN_WINDOW)
          this.#context.violations.report('refusal', 'a FORM is longer than volunteers accept')
        if (this.current && (effect.message.type === 'grant' || effect.message.type === 'validate'))
          this.#records.chronicle.granted(effect.message.leases)
        if (effect.message.type === 'rebalance-done') this.#countMoved(effect.to, effect.message)
        return this.sessions.get(effect.to)?.toMember(effect.message)
      case 'refuse':
        return this.#refuse(effect)
      case 'dismiss':
        return this.sessions.get(effect.member)?.break()
      case 'note':
        return this.#context.trace(() => `${this.name} notes: ${effect.text}`)
      case 'ended':
        return
      case 'check-blocks':
        return this.#lookAt(effect.blocks)
      case 'parked':
        return this.#records.switchJob(this)
      case 'derive-state':
        return this.#notDerived(effect)
      case 'digest-checkpoint':
        return this.#digestCheckpoint(effect)
      case 'server-load':
        return this.#server.load(effect.checkpoint, () => this.damaged(effect.checkpoint.version, 'server'))
      case 'server-add':
        return this.#server.add(gradient)
      case 'server-close':
        return this.#server.close(effect.record, effect.version)
      case 'server-checkpoint':
        return this.#server.write(effect.version, (written) => this.decide({ type: 'server-checkpoint', ...written }))
      case 'server-unload':
        return this.#server.unload()
      case 'off-ring-add':
        this.#offRingSums.open = plus(
          this.#offRingSums.open ?? new Float32Array(this.#context.history.length),
          gradient ?? new Float32Array(),
        )
        return
      case 'off-ring-give':
        this.#context.counts.offRingSums++
        this.#offRingSums = {
          open: undefined,
          given: this.#offRingSums.open && { id: effect.id, sum: this.#offRingSums.open },
        }
        return
      case 'off-ring-forget':
        this.#offRingSums = { open: effect.open ? undefined : this.#offRingSums.open, given: undefined }
        return
      case 'push-verdict':
        this.#context.counts[effect.verdict === 'received' ? 'pushesTaken' : 'pushesRefused']++
        return this.#context.trace(() => `${this.name} answers the push: ${effect.verdict} (${effect.message})`)
      default:
        effect satisfies never
    }
  }

  #lookAt(blocks: readonly BlockId[]): void {
    const { agenda, dice, shards } = this.#context
    agenda.later(
      dice.between(0, LOOK_MS),
      () => `${this.name} looks at the files of ${blocks.length} blocks`,
      () => {
        for (const look of shards.look(blocks, agenda.now)) this.decide({ type: 'shard-checked', ...look })
      },
    )
  }

  #digestCheckpoint({ version, salt }: Extract<Effect, { type: 'digest-checkpoint' }>): void {
    const { agenda, dice } = this.#context
    agenda.later(
      dice.between(0, LOOK_MS),
      () => `${this.name} digests its checkpoint ${version.v}`,
      () => {
        const replica = this.#context.stored(version)
        if (replica !== undefined)
          this.decide({ type: 'checkpoint-digested', salt, digest: saltedDigestOf(replica, salt) })
      },
    )
  }

  /** Members that disagree are settled by votes here. */
  #notDerived({ version }: Extract<Effect, { type: 'derive-state' }>): void {
    this.#context.agenda.later(
      1,
      () => `${this.name} derives no state of version ${version.v}`,
      () => this.decide({ type: 'state-derived', version, derived: { why: 'nothing is derived here' } }),
    )
  }

  #countMoved(to: MemberId, { moves }: MessageTo<'rebalance-done'>): void {
    const { phase } = this.state
    if (phase.type !== 'ring') return
    for (const move of moves) if (phase.members[move.to] === to) this.#context.counts.movedBlocks += move.blocks.length
  }

  /** R1: durable before any effect leaves. */
  append(rows: readonly Row[]): boolean {
    if (!this.#write(rows)) return false
    for (const { entry } of rows) {
      this.#context.trace(() => `${this.name} journals ${JSON.stringify(entry).slice(0, 200)}`)
      this.#records.chronicle.observe(entry)
    }
    return true
  }

  /** Every append is conditional on the fence: a coordinator that was replaced stops here. */
  #write(rows: readonly Row[]): boolean {
    if (!this.#records.journal.append(rows, this.#fence)) {
      this.#context.counts.fencedAppends++
      this.die('another coordinator owns the journal')
      return false
    }
    for (const { entry } of rows) if (entry.type === 'fence') this.#fence = entry.fence
    return true
  }

  #refuse({ to, code, message }: Extract<Effect, { type: 'refuse' }>): void {
    const session = this.sessions.get(to)
    const fatal = !this.state.members.has(to)
    session?.toMember({ type: 'refused', code, message, fatal })
    if (fatal) session?.break() // it comes back, as after any other end of its socket
    if (code === 'digest-mismatch') this.#context.violations.report('I2', `${to} is told: ${message}`)
    // members may have worked in generations that a restored journal does not know
    const isLiar = [...this.#context.invented.values()].includes(to)
    if (code === 'message-unexpected' && !isLiar && !this.#records.chronicle.restored)
      this.#context.violations.report('refusal', `${to} is told: ${message}`)
  }

  #welcome(connection: Connection, { incarnation, name }: MessageFrom<'hello'>): void {
    this.sessions.set(incarnation, connection)
    const adapter = { name: 'none', vendor: 'simulation', software: true, executor: 'reference' } as const
    const samplesPerSecond = this.#context.dice.pick([0, 100, 100, 250]) ?? 0
    this.decide({
      type: 'member-joined',
      member: { id: incarnation, name, client: 'node', adapter },
      samplesPerSecond,
      ...(connection.holds ? { holds: connection.holds } : {}),
    })
  }

  #lost(connection: Connection, reason: string, expected: boolean): void {
    const member = connection.member.id
    if (this.sessions.get(member) !== connection) return
    this.sessions.delete(member)
    this.decide({ type: 'member-lost', member, reason, expected })
  }
}
