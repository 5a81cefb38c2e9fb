// A member at work: carries out what sync/member.ts decides, with real links, a real executor and real parameters.
import {
  type BlameReason,
  chunksOfState,
  describeError,
  type FetchRequest,
  type Frame,
  type GradientEncoding,
  type GridError,
  isGridError,
  type LinkTrouble,
  type MemberId,
  type MessageTo,
  saltedDigest,
  type ToCoordinator,
  type VersionRef,
  type Clock,
} from '@starling-grid/protocol'
import { bytesOf } from '../codec/numbers.ts'
import type { Compute } from '../compute.ts'
import type { Batches } from '../data/batch.ts'
import { sha256Of } from '../data/shards.ts'
import { endsWork } from '../fatal.ts'
import type { StepWitness } from '../host.ts'
import { LinkSet } from '../link/link-set.ts'
import type { PeerLink, PeerNetwork } from '../link/peer-link.ts'
import type { LocalRounds } from '../local/local-round.ts'
import type { RoundWork } from '../local/round-work.ts'
import { fateOf } from '../member/frame-fate.ts'
import {
  type MemberCore,
  type MemberEffect,
  type MemberInput,
  neighbours,
  type ControlMessage,
} from '../member/member-state.ts'
import { mayServe, react } from '../member/member.ts'
import type { CatchUpEffect, CatchUpSources } from '../recovery/catch-up.ts'
import type { LocalVersion } from '../recovery/local-version.ts'
import { StateFetch } from '../recovery/state-fetch.ts'
import { StateServer } from '../recovery/state-server.ts'
import { RankFailure } from '../reduce/rank-failure.ts'
import type { AssignmentResult } from './assignment-sum.ts'
import { AssignmentWork } from './assignment-work.ts'
import { GenerationLinks } from './generation-links.ts'
import { Staging } from './staging.ts'
import { StepExchange } from './step-exchange.ts'
import { type StepId, trainStep } from './train-step.ts'

export interface GenerationRunnerParts {
  readonly clock: Clock
  readonly core: MemberCore
  readonly held: LocalVersion
  readonly compute: Compute
  readonly batches: Batches
  /** in jobs with local rounds */
  readonly rounds: LocalRounds | undefined
  readonly network: PeerNetwork
  /** a link through the coordinator (R18) */
  openRelay(member: MemberId, signal: AbortSignal): Promise<PeerLink>
  /** for a link to open; LINK_OPEN_MS where it is not said */
  readonly linkOpenMs: number | undefined
  /** how gradients travel in the ring */
  readonly encoding: GradientEncoding
  /** version 0 and the seed that makes it */
  readonly genesis: VersionRef
  readonly seed: number
  readonly fromCoordinator: CatchUpSources['fromCoordinator']
  /** of audits */
  readonly witness?: StepWitness | undefined
  send(message: ToCoordinator): void
  upload(version: VersionRef, bytes: Uint8Array): Promise<void>
  /** Σ gradients of the steps up to this version */
  uploadSums(version: VersionRef, bytes: Uint8Array): Promise<void>
  /** Σ gradients of off-ring members (A1) */
  offRingSum(id: number): Promise<Float32Array>
  /** the bytes of a version that most members hold about now */
  onEncoded(state: Uint8Array): void
  /** something worth showing changed */
  onChange(): void
  /** the executor failed: this volunteer cannot go on */
  onFatal(error: unknown): void
}

export class GenerationRunner {
  readonly links: LinkSet
  readonly #parts: GenerationRunnerParts
  readonly #ringLinks: GenerationLinks
  readonly #fetch: StateFetch
  readonly #server: StateServer
  readonly #exchange: StepExchange
  readonly #assignment: AssignmentWork
  /** in jobs with local rounds */
  readonly #round: RoundWork | undefined
  readonly #staging: Staging
  /** samples that this member put into steps that it then held */
  samplesHeld = 0
  #contributed = 0
  #uploading: Promise<unknown> = Promise.resolve()

  constructor(parts: GenerationRunnerParts) {
    this.#parts = parts
    const send = (to: MemberId, frame: Frame): void => this.links.send(to, frame)
    this.links = new LinkSet(
      parts.network,
      parts.openRelay,
      {
        onFrame: (from, frame) => this.#received(from, frame),
        onLost: (member, why, error) => this.#lost(member, why, error),
      },
      parts,
    )
    this.#ringLinks = new GenerationLinks({
      self: parts.core.id,
      links: this.links,
      clock: parts.clock,
      tell: this.tell,
      send: parts.send,
    })
    this.#fetch = new StateFetch({
      send,
      clock: parts.clock,
      reach: (member, signal) => this.#ringLinks.reach(member, signal),
    })
    this.#server = new StateServer({
      send,
      clock: parts.clock,
      mayServe: (request, generation) => mayServe(parts.core, generation, request.version, request.kind),
      promised: () => parts.core.promised,
      bytesOf: this.#bytesOf,
    })
    this.#staging = new Staging(parts)
    this.#exchange = new StepExchange({ ...parts, forward: this.#forward, onSum: (sum) => this.#staging.stageSum(sum) })
    this.#assignment = new AssignmentWork({ ...parts, tell: this.tell, bucketsOf: this.#exchange.bucketsOf })
    this.#round = parts.rounds?.workOf({ ...parts, contributeBucket: this.#exchange.contributeRoundBucket })
  }

  order(order: ControlMessage): void {
    this.tell({ type: 'order', order })
  }

  tell = (input: MemberInput): void => {
    for (const effect of react(this.#parts.core, input)) this.#carryOut(effect)
    this.#parts.onChange()
  }

  /** ms that a frame takes to the slowest neighbour; undefined: not measured yet. */
  get linkMs(): number | undefined {
    const { ring } = this.#parts.core
    return ring === undefined ? undefined : this.links.latencyMs(neighbours(ring))
  }

  stop(): void {
    this.#server.stop()
    this.#halt()
    this.links.close()
  }

  #carryOut(effect: MemberEffect): void {
    const { send } = this.#parts
    switch (effect.type) {
      case 'send':
        return send(effect.message)
      case 'halt':
        return this.#halt()
      case 'open-links':
        return this.#openLinks(effect)
      case 'meet':
        return this.#ringLinks.meet(effect.members)
      case 'fetch-state':
      case 'fetch-reduced':
        return void this.#catchUp(effect)
      case 'adopt':
        return this.#staging.adopt(effect.version)
      case 'apply':
        this.#staging.apply(effect.record, effect.version)
        this.#exchange.committed(effect.version, effect.record.kind)
        this.samplesHeld += this.#contributed
        this.#contributed = 0
        return
      case 'confirm':
        return void this.#confirm(effect).catch(this.#parts.onFatal)
      case 'compute':
        return void trainStep(effect, {
          gradientOfAssignment: this.#assignment.compute,
          localRound: this.#localRound,
          tell: this.tell,
          reduced: this.#exchange.reduced,
        }).catch((error: unknown) => this.#computeFailed(effect.generation, error))
      case 'fetch-off-ring':
        return void this.#assignment.fetchOffRing(effect.generation, effect.id)
      case 'resume':
        return this.#assignment.resumed()
      case 'report-standing': {
        const { fence, generation, step, stage } = effect
        return send({ type: 'standing', fence, generation, step, stage, ...this.#exchange.standing(step) })
      }
      case 'contribute':
        return this.#contribute(effect)
      case 'copy':
        return void this.#copy(effect).catch(this.#parts.onFatal)
      case 'prove':
        return void this.#prove(effect.order).catch(this.#parts.onFatal)
      case 'upload':
        return void this.#upload(effect.version)
      case 'report-digest':
        return void this.#reportDigest(effect).catch(this.#parts.onFatal)
      default:
        effect satisfies never
    }
  }

  /** R3: the ring stops, its frames are dropped, also those already queued. */
  #halt(): void {
    this.#exchange.halt()
    this.#assignment.halt()
    this.#contributed = 0
    this.#ringLinks.halt()
    this.#server.forget()
    this.links.clear()
  }

  /** The exchange is ready before the first frame can come. */
  #openLinks(effect: Extract<MemberEffect, { type: 'open-links' }>): void {
    const { ring } = this.#parts.core
    if (ring === undefined) return
    this.#exchange.open(effect.generation, this.#round?.buckets)
    this.#ringLinks.open({ ...effect, fence: ring.fence, members: ring.members })
  }

  async #catchUp(effect: CatchUpEffect): Promise<void> {
    const { core, held, fromCoordinator } = this.#parts
    const { signal } = this.#ringLinks
    try {
      await this.#staging.fetch(
        effect,
        { self: core.id, fromCoordinator, held, fetch: this.#fetch, isLinked: (member) => this.links.has(member) },
        signal,
      )
      if (!signal.aborted)
        this.tell({
          type: effect.type === 'fetch-state' ? 'state-fetched' : 'reduced-fetched',
          generation: effect.generation,
          version: effect.target,
        })
    } catch (error) {
      if (signal.aborted) return
      if (effect.type === 'fetch-reduced') this.tell({ type: 'reduced-missing', generation: effect.generation })
      else this.#trouble(effect.generation, { blamed: null, why: 'own' }, error)
    }
  }

  async #confirm({ fence, generation, version }: Extract<MemberEffect, { type: 'confirm' }>): Promise<void> {
    const found = await sha256Of(this.#parts.held.encode())
    this.#parts.send({ type: 'confirm', fence, generation, version, digest: found })
  }

  /** The digest is made of the copy, chunk by chunk beside the step. */
  async #copy({ fence, generation, version, salt }: Extract<MemberEffect, { type: 'copy' }>): Promise<void> {
    const state = this.#parts.held.encode()
    this.#server.keep(version, state)
    const digest = await saltedDigest(chunksOfState(state), salt)
    if (this.#parts.core.promised === generation)
      this.#parts.send({ type: 'copied', fence, generation, version, digest })
  }

  async #prove({ fence, generation, salt, peers }: MessageTo<'prove'>): Promise<void> {
    const { signal } = this.#ringLinks
    const digest = saltedDigest(chunksOfState(this.#parts.held.encode()), salt)
    const links = await Promise.allSettled(peers.map((peer) => this.#ringLinks.reach(peer, signal)))
    const linked = peers.filter((_, i) => links[i]?.status === 'fulfilled')
    const proof = { type: 'proof', fence, generation, salt, digest: await digest, linked } as const
    if (!signal.aborted) this.#parts.send(proof)
  }

  async #reportDigest({ fence, generation, version }: Extract<MemberEffect, { type: 'report-digest' }>): Promise<void> {
    this.#parts.send({ type: 'version-digest', fence, generation, version, digest: await sha256Of(this.#encoded()) })
  }

  /**
   * One whole state at a time: two would share one line. When the first is gone, a ring that goes on holds another
   * version.
   */
  async #upload(version: VersionRef): Promise<void> {
    await this.#uploading
    if (this.#parts.held.version?.id !== version.id) return
    // another member is asked in turn
    this.#uploading = this.#parts.upload(version, this.#encoded()).catch(() => undefined)
  }

  /** Of committed steps, while they are kept; nothing when one of them is not. After what is under way on the line. */
  async sendSums(versions: readonly VersionRef[]): Promise<void> {
    await this.#uploading
    const last = versions.at(-1)
    const sums = versions.flatMap((version) => this.#parts.held.reduced(version) ?? [])
    if (last === undefined) return
    const bytes = joined(sums.length === versions.length ? sums : [])
    // another member is asked in turn
    this.#uploading = this.#parts.uploadSums(last, bytes).catch(() => undefined)
  }

  #encoded(): Uint8Array {
    const state = this.#parts.held.encode()
    this.#parts.onEncoded(state)
    return state
  }

  #contribute({ step, manifest }: Extract<MemberEffect, { type: 'contribute' }>): void {
    const { core, rounds } = this.#parts
    this.#contributed = manifest.samples
    this.#exchange.contribute(
      step,
      manifest,
      core.ring?.kind === 'round' && rounds ? rounds.contribution : this.#assignment.gradient,
    )
  }

  #localRound = (order: StepId): Promise<AssignmentResult | undefined> => {
    if (this.#round === undefined) throw new Error('internal: a round in a job without local rounds')
    return this.#round.compute(order)
  }

  #forward = (frame: Frame, to: number): void => {
    const member = this.#parts.core.ring?.members[to]
    if (member !== undefined) this.links.send(member, frame)
  }

  #received(from: MemberId, frame: Frame): void {
    const fate = fateOf(this.#parts.core, from, frame)
    switch (fate) {
      case 'serve':
        return this.#server.serve(from, frame)
      case 'answer':
        return this.#fetch.accept(from, frame)
      case 'reduce':
        return this.#ringFrame(from, frame)
      case 'ignore':
        return
      case 'generation-stale':
      case 'message-unexpected':
        return this.links.countRefusal(fate, from)
      default:
        fate satisfies never
    }
  }

  #bytesOf = (request: FetchRequest): Uint8Array | undefined => {
    const { held } = this.#parts
    if (request.kind === 'state') return held.encode()
    const sum = held.reduced(request.version)
    return sum === undefined ? undefined : bytesOf(sum)
  }

  #ringFrame(from: MemberId, frame: Frame): void {
    try {
      this.#exchange.accept(frame, this.#parts.core.ring?.members.indexOf(from))
    } catch (error) {
      this.#refuse(frame.generation, from, error)
    }
  }

  /**
   * What came for a step does not fit: `from` sent it, unless it was another's of all that came (direct-reduce.ts).
   */
  #refuse(generation: number, from: MemberId, error: unknown): void {
    const blamed = (error instanceof RankFailure ? this.#parts.core.ring?.members[error.rank] : undefined) ?? from
    if (isGridError(error)) this.links.countRefusal(error.code, blamed)
    this.#trouble(generation, { blamed, why: 'refused' }, error)
  }

  #lost(member: MemberId, why: LinkTrouble | 'refused', error: GridError): void {
    this.#fetch.lost(member)
    const { ring } = this.#parts.core
    if (ring === undefined || !ring.linksOpen || !neighbours(ring).includes(member)) return
    if (why === 'refused') this.#trouble(ring.generation, { blamed: member, why }, error)
    else this.#ringLinks.trouble({ generation: ring.generation, peers: [member], why, error })
  }

  #computeFailed(generation: number, error: unknown): void {
    if (error instanceof RankFailure) return this.#refuse(generation, this.#parts.core.id, error)
    if (!endsWork(error)) return this.#trouble(generation, { blamed: this.#parts.core.id, why: 'own' }, error)
    this.#parts.onFatal(error)
  }

  #trouble(
    generation: number,
    blame: { readonly blamed: MemberId | null; readonly why: BlameReason },
    error: unknown,
  ): void {
    const code = isGridError(error) ? error.code : 'link-lost'
    this.tell({ type: 'trouble', generation, ...blame, code, message: describeError(error).slice(0, 300) })
  }
}

function joined(sums: readonly Float32Array[]): Uint8Array {
  const whole = new Uint8Array(sums.reduce((bytes, sum) => bytes + sum.byteLength, 0))
  let at = 0
  for (const sum of sums) {
    whole.set(bytesOf(sum), at)
    at += sum.byteLength
  }
  return whole
}

/** Which messages of the coordinator are for the ring. */
export function isRunOrder(message: { readonly type: string }): message is ControlMessage {
  return ORDERS.has(message.type)
}
const ORDERS: ReadonlySet<string> = new Set<ControlMessage['type']>([
  'freeze',
  'form',
  'start',
  'plan',
  'hold',
  'inquire',
  'release',
  'moved',
  'off-ring',
  'off-ring-take',
  'until',
  'ack',
  'checkpoint-at',
  'copy-at',
  'meet',
  'prove',
  'prefetch',
  'follow',
  'upload-request',
  'async',
])
