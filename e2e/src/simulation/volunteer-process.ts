// One member: the real state machine (sync/member.ts) and the real ring exchange over packed frames, with counted
// blocks in the place of parameters. It dies whole; a member that comes back is a new one.
import {
  type BlockId,
  type Claim,
  type ErrorCode,
  type MemberId,
  type MessageTo,
  PROTOCOL_VERSION,
  type ToCoordinator,
  type ToVolunteer,
  unpackFrame,
} from '@starling-grid/protocol'
import {
  claimOf,
  createMember,
  goOnFrom,
  type MemberCore,
  type MemberEffect,
  type MemberInput,
  mayContributeEarly,
  neighbours,
  react,
} from '@starling-grid/volunteer/member'
import { digestOf, plus, type Replica, saltedDigestOf } from '../world/history.ts'
import { AssignmentWork } from './assignment-work.ts'
import { AsyncWork, reportUnreadable } from './async-work.ts'
import type { Connection } from './connection.ts'
import type { Context, FetchWish, Peer } from './context.ts'
import { Fetches } from './fetches.ts'
import { LINK_NOTICE_MS, sendFrames } from './frames-out.ts'
import { ReplicaStore } from './larder.ts'
import { RingWork } from './ring-work.ts'
import { Standstill } from './standstill.ts'

export const NEWCOMERS = ['mute', 'wrong', 'unreachable'] as const
export type Newcomer = (typeof NEWCOMERS)[number]

/** A state for the next visit, and the records that lead to it. */

export interface Kept {
  readonly replica: Replica
  readonly claim: Claim
}

type EffectOf<T extends MemberEffect['type']> = Extract<MemberEffect, { type: T }>

/** Who owns which id is not simulated. */
const NO_PROOF = { publicKey: '', salt: '', coordinator: '', signature: '' }
/** steps that are replayed instead of fetching a state */
const REPLAYED = 3
export class VolunteerProcess implements Peer {
  readonly id: MemberId
  readonly seat: number
  core: MemberCore
  replica: Replica | undefined
  connection: Connection | undefined
  /** its socket breaks when it next sends this, or fetches */
  breaksAt: ToCoordinator['type'] | 'fetch' | undefined
  /** of one that comes late: it answers ballots and nothing else, does not hold what it says, or opens no link */
  newcomer: Newcomer | undefined
  /** asked to leave: it ends with its socket */
  leaving = false
  alive = true
  /** the whole process sleeps, as under the lid of a laptop */
  readonly asleep = new Standstill()
  /** a computation hangs, all else goes on */
  readonly stuck = new Standstill()
  readonly #context: Context
  readonly #fetches: Fetches
  readonly #asyncWork: AsyncWork
  readonly #assignmentWork: AssignmentWork
  /** the generation it is in */
  #ring: RingWork | undefined
  readonly #larder = new ReplicaStore()

  constructor(context: Context, id: MemberId, seat: number) {
    this.#context = context
    this.id = id
    this.seat = seat
    this.core = this.#newCore()
    this.#fetches = new Fetches(context, this)
    this.#asyncWork = new AsyncWork(context, this)
    this.#assignmentWork = new AssignmentWork(context, this)
  }

  #newCore(): MemberCore {
    return createMember(this.id, this.#context.scenario.config.genesis, REPLAYED)
  }

  /** What it keeps of its state for the next visit, and the proof of it (R4). */
  get kept(): Kept | undefined {
    const claim = claimOf(this.core)
    if (claim === null || this.replica === undefined) return undefined
    const proof =
      this.#context.scenario.mutant === 'keeps-no-proof' ? { base: this.replica.version, records: [] } : claim
    return { replica: { ...this.replica, counts: this.replica.counts.slice() }, claim: proof }
  }

  /** A warm start. */
  goOnFrom({ replica, claim }: Kept): void {
    if (!goOnFrom(this.core, claim, replica.version))
      throw new Error(`internal: ${this.id} kept version ${replica.version.v} without its proof`)
    this.replica = replica
    this.#context.counts.warmStarts++
  }

  /** It takes part in another job for a while, and comes back with what it kept. */
  visitAnotherJob(kept: Kept | undefined): void {
    this.#ring = undefined
    this.core = this.#newCore()
    this.replica = undefined
    if (kept !== undefined) this.goOnFrom(kept)
    this.connection?.break()
  }

  connect(connection: Connection): void {
    this.connection = connection
    if (this.#context.scenario.warm) connection.holds = this.core.version
    connection.coordinator.connected(connection)
    connection.toCoordinator({
      type: 'hello',
      protocol: PROTOCOL_VERSION,
      incarnation: this.id,
      name: this.id,
      client: 'node',
      ...NO_PROOF,
    })
  }

  closed(connection: Connection): void {
    if (this.connection !== connection || this.asleep.defers(() => this.closed(connection))) return
    this.connection = undefined
    if (this.leaving) this.#context.departed(this)
    else this.#context.reconnect(this)
  }

  leave(): void {
    this.leaving = true
    this.connection?.toCoordinator({ type: 'leave' })
  }

  die(): void {
    this.alive = false
    this.connection?.break()
  }

  received(connection: Connection, message: ToVolunteer): void {
    if (
      connection !== this.connection ||
      this.#context.has('deaf', this) ||
      this.asleep.defers(() => this.received(connection, message))
    )
      return
    switch (message.type) {
      case 'freeze':
        return this.#freeze(message)
      case 'form':
      case 'start':
      case 'plan':
      case 'rebalance':
      case 'inquire':
      case 'rebalance-release':
      case 'rebalance-done':
      case 'off-ring':
      case 'off-ring-take':
      case 'last-step':
      case 'ack':
      case 'checkpoint-at':
      case 'copy-at':
      case 'meet':
      case 'prove':
      case 'prefetch':
      case 'follow':
      case 'upload-request':
      case 'async':
        return this.take({ type: 'order', order: message })
      case 'grant':
        return this.#asyncWork.granted(message)
      case 'validate':
        return this.#asyncWork.validate(message)
      case 'challenge':
      case 'welcome':
      case 'ice-servers':
      case 'job':
      case 'refused':
      case 'wait':
      case 'finished':
      case 'sums-request': // computes with bytes
        return
      default:
        message satisfies never
    }
  }

  #freeze(order: MessageTo<'freeze'>): void {
    if (order.generation === this.core.promised) this.#context.counts.equalBallots++
    this.take({ type: 'order', order })
  }

  /** The one way into the state machine. Effects are carried out at once and in order. */
  take(input: MemberInput): void {
    if (!this.alive || this.asleep.defers(() => this.take(input))) return
    if (input.type === 'computed' && this.stuck.defers(() => this.take(input))) return
    for (const effect of react(this.core, input)) this.#carryOutAlive(effect, this.#ring)
    this.#context.touched()
    this.#countExhausted(input)
    this.#finishReduce(this.#ring)
  }

  #countExhausted({ type }: MemberInput): void {
    const { ring } = this.core
    if (type === 'reduced' && ring?.plan.size === 0 && this.connection?.up !== true)
      this.#context.counts.plansExhausted++
  }

  #finishReduce(ring: RingWork | undefined): void {
    const whole = ring?.whole()
    if (whole !== undefined) this.take(whole)
  }

  /** It may die of what is done at these moments. */
  #carryOutAlive(effect: MemberEffect, ring: RingWork | undefined): void {
    const what = effect.type === 'send' ? effect.message.type : effect.type
    if (this.alive) this.#context.moment(this.id, { at: 'before', what })
    if (!this.alive) return
    this.#carryOut(effect, ring)
    this.#context.moment(this.id, { at: 'after', what })
  }

  #carryOut(effect: MemberEffect, ring: RingWork | undefined): void {
    switch (effect.type) {
      case 'send':
        return this.#send(effect.message)
      case 'halt':
        this.#context.counts.voidBuckets += this.#ring?.earlyBuckets ?? 0
        this.#ring = undefined
        return
      case 'open-links':
        return this.#openLinks(effect)
      case 'fetch-state':
      case 'fetch-reduced':
        if (effect.sources.length > 0) this.#mayBreak('fetch')
        return this.#fetches.begin(effect.type === 'fetch-state' ? 'state' : 'reduced', effect)
      case 'adopt':
        this.replica = this.#fetches.takeState(effect.version)
        return
      case 'apply':
        return this.#apply(effect, ring)
      case 'confirm':
        return this.#report(effect, 'confirm')
      case 'report-digest':
        return this.#report(effect, 'version-digest')
      case 'compute':
        return this.#assignmentWork.begin(effect)
      case 'resume':
        return this.#assignmentWork.resume()
      case 'report-standing': {
        const { fence, generation, step, stage } = effect
        return this.#send({
          type: 'standing',
          fence,
          generation,
          step,
          stage,
          ...(ring?.standing(step) ?? { received: 0, waitsFor: [] }),
        })
      }
      case 'contribute':
        return sendFrames(this.#context, this, ring?.contribute(effect) ?? [], ring)
      case 'fetch-off-ring':
        return this.#fetches.beginOffRing(effect, (sum) => ring?.stageOffRing(sum) ?? false)
      case 'meet': // all links of the simulation open
        return
      case 'copy':
        return this.#copy(effect)
      case 'prove':
        return this.#prove(effect.order)
      case 'upload':
        return this.#upload()
      default:
        effect satisfies never
    }
  }

  /** As Batches and GenerationRunner do: the coordinator looks at its file, and this generation cannot go on. */
  cannotRead(generation: number, blocks: readonly BlockId[], code: ErrorCode): void {
    const message = 'the blocks could not be read'
    const { agenda } = this.#context
    agenda.later(
      0,
      () => `${this.id} cannot read [${blocks.join(' ')}]: ${code}`,
      () => {
        if (this.core.ring?.generation !== generation) return
        reportUnreadable(this.#context, this.connection, blocks, code)
        this.take({ type: 'trouble', generation, blamed: this.id, why: 'own', code, message })
      },
    )
  }

  contributeEarly(generation: number, step: number, blocks: readonly BlockId[]): void {
    const ring = this.#ring
    if (!this.alive || ring?.generation !== generation || !mayContributeEarly(this.core, { generation, step })) return
    this.#context.counts.earlyBuckets++
    sendFrames(this.#context, this, ring.contributeEarly(step, blocks), ring)
  }

  #send(message: ToCoordinator): void {
    if (this.newcomer === 'mute' && message.type !== 'state') return
    if (this.newcomer === 'wrong' && message.type === 'lease-request') return // no push speaks for it either
    this.#mayBreak(message.type)
    if (message.type === 'abort' && message.code === 'message-unexpected')
      this.#context.violations.report('refusal', `${this.id} refuses what an honest member sent: ${message.message}`)
    this.connection?.toCoordinator(message)
  }

  #mayBreak(moment: ToCoordinator['type'] | 'fetch'): void {
    if (moment !== this.breaksAt || this.connection?.up !== true) return
    this.breaksAt = undefined
    this.#context.counts.faults['socket-loss-in-exchange']++
    this.connection.break()
  }

  #openLinks({ generation, neighbours, relayed }: EffectOf<'open-links'>): void {
    const { agenda, dice, scenario } = this.#context
    if (this.core.ring !== undefined) this.#ring = new RingWork(this.#context, this.core)
    agenda.later(
      dice.between(0, scenario.linksMs),
      () => `${this.id} opens its links for g${generation}`,
      () => {
        const isDead = (id: MemberId): boolean =>
          this.#context.peer(id)?.alive !== true || (this.newcomer === 'unreachable' && !relayed.includes(id))
        const dead = neighbours.find(isDead)
        if (dead === undefined) this.take({ type: 'links-open', generation })
        else
          this.take({
            type: 'trouble',
            generation,
            blamed: dead,
            why: 'unopened',
            code: 'link-timeout',
            message: 'the link could not be opened',
          })
      },
    )
  }

  /** R10: version and parameters change together, in one piece. */
  #apply({ record, version }: EffectOf<'apply'>, ring: RingWork | undefined): void {
    const fetched = this.#fetches.takeReduced(version)
    const sum = fetched ?? ring?.takeSum()
    if (sum === undefined || this.replica === undefined)
      throw new Error(`internal: ${this.id} applies a sum that it does not have`)
    this.#context.history.record(this.replica.version, record, version)
    this.replica = { version, counts: plus(this.replica.counts, sum) }
    this.#larder.keep(version, sum)
  }

  #report(
    { fence, generation, version }: EffectOf<'confirm'> | EffectOf<'report-digest'>,
    type: 'confirm' | 'version-digest',
  ): void {
    if (this.replica !== undefined) this.#send({ type, fence, generation, version, digest: digestOf(this.replica) })
  }

  missed(from: MemberId, generation: number): void {
    this.take({
      type: 'trouble',
      generation,
      blamed: from,
      why: 'silent',
      code: 'reduce-timeout',
      message: `no frames of ${from}`,
    })
  }

  #copy({ fence, generation, version, salt }: EffectOf<'copy'>): void {
    if (this.replica === undefined) return
    this.#larder.copy = this.replica
    this.#send({ type: 'copied', fence, generation, version, digest: saltedDigestOf(this.replica, salt) })
  }

  /** Links to living members open. */
  #prove({ fence, generation, salt, peers }: MessageTo<'prove'>): void {
    if (this.replica === undefined) return
    const digest = this.newcomer === 'wrong' ? digestOf(this.replica) : saltedDigestOf(this.replica, salt)
    const { agenda, dice, scenario } = this.#context
    agenda.later(
      dice.between(0, scenario.linksMs),
      () => `${this.id} links to ${peers.join(' and ')} to prove what it holds`,
      () => {
        if (this.core.promised !== generation) return
        const isFree = (id: MemberId): boolean =>
          this.newcomer !== 'unreachable' && this.#context.peer(id)?.alive === true
        this.#context.counts.proofs++
        this.#send({ type: 'proof', fence, generation, salt, digest, linked: peers.filter(isFree) })
      },
    )
  }

  /** Another member's process is gone: its neighbours see the link break. */
  noticeDeathOf(other: MemberId): void {
    const { agenda, dice } = this.#context
    agenda.later(
      dice.between(0, LINK_NOTICE_MS),
      () => `${this.id} sees its link to ${other} break`,
      () => {
        const { ring } = this.core
        if (ring !== undefined && neighbours(ring).includes(other))
          this.take({
            type: 'trouble',
            generation: ring.generation,
            blamed: other,
            why: 'closed',
            code: 'link-lost',
            message: 'the link broke',
          })
      },
    )
  }

  frameArrived(from: MemberId, bytes: Uint8Array): void {
    if (!this.alive || this.asleep.defers(() => this.frameArrived(from, bytes))) return
    const ring = this.#ring
    if (ring?.isFor(bytes) !== true) return
    const { forward, refused } = ring.accept(from, bytes)
    if (refused !== undefined)
      return this.take({ type: 'trouble', generation: ring.generation, blamed: from, why: 'refused', ...refused })
    this.#context.touched()
    sendFrames(this.#context, this, forward, ring)
    const { type, hop } = unpackFrame(bytes)
    this.#context.moment(this.id, { at: 'frame', type, hop })
    this.#finishReduce(ring)
  }

  serve(wish: FetchWish): Float32Array | undefined {
    return this.#larder.serve(wish, this.core, this.replica)
  }

  #upload(): void {
    const { connection } = this
    if (this.replica === undefined || connection === undefined || this.#context.has('no-uploads', this)) return
    this.#context.counts.uploads++
    this.#sendUp(connection, { ...this.replica, counts: this.replica.counts.slice() })
  }

  /** Training goes on meanwhile. When the answer is lost it is sent again. */
  #sendUp(connection: Connection, replica: Replica): void {
    const { agenda, dice, scenario, counts } = this.#context
    const what = (): string => `${this.id} uploads version ${replica.version.v}`
    const arrive = (): void => {
      connection.coordinator.uploaded(this.id, replica)
      if (!dice.chance(scenario.lostAnswers) || connection !== this.connection) return
      counts.lostAnswers++
      this.#sendUp(connection, replica)
    }
    if (scenario.uploadMs === undefined) agenda.send(`${this.id}⇈`, what, arrive)
    else agenda.later(dice.between(0, scenario.uploadMs), what, arrive)
  }
}
