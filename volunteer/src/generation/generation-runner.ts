// A member at work: carries out what member/member.ts decides, with real links, a real executor and real parameters.
import {
  chunksOfState,
  type FetchRequest,
  type Frame,
  type GridError,
  type HashList,
  isGridError,
  type LinkTrouble,
  MAX_DIRECT_MEMBERS,
  type MemberId,
  type MessageTo,
  saltedDigest,
  sameVersion,
  SerialQueue,
  type Sha256,
  type VersionRef,
  sha256Of,
} from '@starling-grid/protocol'
import { bytesOf } from '../codec/numbers.ts'
import { endsWork } from '../fatal.ts'
import type { StepWitness } from '../host.ts'
import { LinkSet } from '../link/link-set.ts'
import type { PeerLink, PeerNetwork } from '../link/peer-link.ts'
import { fateOf } from '../member/frame-fate.ts'
import {
  type MemberCore,
  type MemberEffect,
  type MemberInput,
  neighbours,
  type ControlMessage,
} from '../member/member-state.ts'
import { mayServe, react } from '../member/member.ts'
import { catchUpBytes, type CatchUpEffect, type CatchUpSources, inTurn, requireInitial } from '../recovery/catch-up.ts'
import type { DecodedVersion } from '../recovery/local-version.ts'
import { StateFetch } from '../recovery/state-fetch.ts'
import { StateServer } from '../recovery/state-server.ts'
import type { UploadShare } from '../recovery/upload-share.ts'
import { gradientBuckets } from '../reduce/gradient-buckets.ts'
import { RankFailure } from '../reduce/rank-failure.ts'
import type { Blame } from './generation-links.ts'
import { Generation, type GenerationParts, type JobParts } from './generation.ts'
import { LossyWays } from './lossy-ways.ts'
import { trainStep } from './step.ts'

export interface GenerationRunnerParts extends JobParts {
  readonly core: MemberCore
  readonly network: PeerNetwork
  /** a link through the coordinator (R18) */
  openRelay(member: MemberId, signal: AbortSignal): Promise<PeerLink>
  /** for a link to open; LINK_OPEN_MS where it is not said */
  readonly linkOpenMs: number | undefined
  /** version 0, and what makes it: the seed, or parameters of this digest, which the coordinator has */
  readonly genesis: VersionRef
  readonly seed: number
  readonly initial?: Sha256 | undefined
  readonly fromCoordinator: CatchUpSources['fromCoordinator']
  /** of audits */
  readonly witness?: StepWitness | undefined
  /** a newcomer asks for a shard; absent: the job has no base */
  readonly shareBase?: ((from: MemberId, frame: Frame) => void) | undefined
  upload(version: VersionRef, bytes: Uint8Array): Promise<void>
  /** Σ gradients of the steps up to this version */
  uploadSums(version: VersionRef, bytes: Uint8Array): Promise<void>
  /** of versions that others begin a round from */
  readonly uploads: UploadShare
  /** the bytes of a version that most members hold about now */
  onEncoded(state: Uint8Array): void
  /** something worth showing changed */
  onChange(): void
  /** the executor failed: this volunteer cannot go on */
  onFatal(error: unknown): void
}

export interface RoundBaseRequest {
  readonly version: VersionRef
  /** members that have it, or fetch it now */
  readonly sources: readonly MemberId[]
  /** of its chunks, as the coordinator says: nothing else is believed of a member */
  hashes(): Promise<HashList>
  /** the coordinator's copy, from a byte on */
  rest(from: number): Promise<Uint8Array>
}

export interface RoundBase {
  readonly bytes: Uint8Array
  /** sources that gave nothing, or something else */
  readonly unserved: readonly MemberId[]
}

export class GenerationRunner {
  readonly links: LinkSet
  readonly #parts: GenerationRunnerParts
  readonly #lasting: GenerationParts
  /** from one halt to the next */
  #generation: Generation
  readonly #fetch: StateFetch
  readonly #server: StateServer
  /** samples that this member put into steps that it then held */
  samplesHeld = 0
  /** of whole states and sums: two at once would share one line */
  readonly #uploads = new SerialQueue()

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
    this.#fetch = new StateFetch({
      send,
      clock: parts.clock,
      reach: (member, signal) => this.#generation.links.reach(member, signal),
      onUnreached: (member) => {
        this.links.countRefusal('link-timeout', member)
        this.#generation.unreached.add(member)
      },
    })
    this.#server = new StateServer({
      send,
      clock: parts.clock,
      mayServe: (request, generation) => mayServe(parts.core, generation, request.version, request.kind),
      promised: () => parts.core.promised,
      bytesOf: this.#bytesOf,
    })
    this.#lasting = { ...parts, ...waysOf(parts), links: this.links, tell: this.tell, pace: { blockMs: 0 } }
    this.#generation = new Generation(this.#lasting)
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
        return this.#generation.open(effect)
      case 'meet':
        return this.#generation.links.meet(effect.members, effect.relayed)
      case 'fetch-state':
      case 'fetch-reduced':
        return void this.#catchUp(effect)
      case 'adopt':
        return this.#adopt(effect.version)
      case 'apply':
        return this.#apply(effect)
      case 'confirm':
        return void this.#confirm(effect).catch(this.#parts.onFatal)
      case 'compute':
        return void trainStep(effect, this.#generation).catch((error: unknown) =>
          this.#computeFailed(effect.generation, error),
        )
      case 'fetch-given':
        return void this.#generation.fetchGiven(effect.generation, effect.id)
      case 'resume':
        return this.#generation.resume()
      case 'report-standing': {
        const { fence, generation, step, stage } = effect
        return send({ type: 'standing', fence, generation, step, stage, ...this.#generation.standing(step) })
      }
      case 'contribute':
        return this.#generation.contribute(effect.step, effect.manifest)
      case 'copy':
        return void this.#copy(effect).catch(this.#parts.onFatal)
      case 'prove':
        return void this.#prove(effect.order).catch(this.#parts.onFatal)
      case 'upload':
        return this.#upload(effect.version)
      case 'report-digest':
        return void this.#reportDigest(effect).catch(this.#parts.onFatal)
      default:
        effect satisfies never
    }
  }

  /** R3: the ring stops, its frames are dropped, also those already queued. */
  #halt(): void {
    this.#generation.abort()
    this.#generation = new Generation(this.#lasting)
    this.#server.forget()
    this.links.dropGenerations()
  }

  /**
   * The bytes that a round begins from (G3): chunks that the coordinator's list knows from the sources, and what they
   * do not give from the coordinator. Without sources all of it. Others that begin from it get it from here meanwhile.
   */
  async roundBase({ version, sources, hashes, rest }: RoundBaseRequest, signal: AbortSignal): Promise<RoundBase> {
    const { core, uploads, witness } = this.#parts
    const shared = this.#server.share(version, uploads)
    const unserved: MemberId[] = []
    try {
      const list = sources.length === 0 ? undefined : await hashes()
      const bytes = list
        ? await this.#fetch.fetch(
            {
              kind: 'parameters',
              version,
              generation: core.promised,
              maxBytes: list.total,
              list,
              onChunk: (all, { from }) => shared.chunk(all, from),
              onFailed: (source) => void unserved.push(source),
            },
            inTurn(core.id, sources, (member) => this.links.has(member)),
            signal,
            rest,
          )
        : await rest(0)
      shared.whole(bytes)
      witness?.began?.(version, bytes)
      return { bytes, unserved }
    } catch (error) {
      shared.end()
      throw error
    }
  }

  /**
   * Brings the target of a ballot here (R7), where it waits for the protocol to adopt or apply it in one piece (I6).
   */
  async #catchUp(effect: CatchUpEffect): Promise<void> {
    const generation = this.#generation
    const { signal } = generation
    try {
      const bytes = await this.#bytesToReach(effect, signal)
      if (signal.aborted) return
      const at = { generation: effect.generation, version: effect.target }
      if (effect.type === 'fetch-state') {
        const state = bytes && (await this.#decoded(bytes, effect.target))
        if (signal.aborted) return
        generation.stageState(state)
        this.tell({ type: 'state-fetched', ...at })
      } else if (bytes !== undefined) {
        generation.stage({ sum: new Float32Array(bytes.buffer), isOwn: false })
        this.tell({ type: 'reduced-fetched', ...at })
      }
    } catch (error) {
      if (signal.aborted) return
      if (effect.type === 'fetch-reduced') this.tell({ type: 'reduced-missing', generation: effect.generation })
      else generation.trouble(effect.generation, causeOf(generation.unreached), error)
    }
  }

  /**
   * Version 0 needs no source where the seed makes it. Otherwise the coordinator has it, whatever members hold. @throws
   * what catchUpBytes throws
   */
  async #bytesToReach(effect: CatchUpEffect, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const { core, held, fromCoordinator, genesis, initial } = this.#parts
    const isBeginning = effect.type === 'fetch-state' && sameVersion(effect.target, genesis)
    if (isBeginning && initial === undefined) return undefined
    const wanted = isBeginning ? { ...effect, sources: [], coordinatorHolds: true } : effect
    const isLinked = (member: MemberId): boolean => this.links.has(member)
    return catchUpBytes(wanted, { self: core.id, fromCoordinator, held, fetch: this.#fetch, isLinked }, signal)
  }

  /** @throws GridError 'version-corrupt', or 'digest-mismatch' of a version 0 with other parameters than the job's */
  async #decoded(bytes: Uint8Array, version: VersionRef): Promise<DecodedVersion> {
    const { held, genesis, initial } = this.#parts
    const state = held.decode(bytes, version)
    if (initial !== undefined && sameVersion(version, genesis)) await requireInitial(state.parameters, initial)
    return state
  }

  #adopt(version: VersionRef): void {
    const { held, seed, witness } = this.#parts
    const state = this.#generation.takeState()
    if (state === undefined) return held.adoptInitial(version, seed)
    held.adopt(state, version)
    witness?.adopted(version, () => held.encode())
  }

  /** R10: parameters, what encoding lost and what a round goes on from swap in one piece. */
  #apply({ record, version }: Extract<MemberEffect, { type: 'apply' }>): void {
    const { held, witness, rounds } = this.#parts
    const { sum, isOwn, samples } = this.#generation.takeSum()
    held.apply(record, version, sum)
    witness?.applied(record, sum)
    this.#generation.lossy?.residual.swap(version, record.kind, isOwn)
    rounds?.committed(version, record.kind, isOwn)
    this.samplesHeld += samples
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
    const { links: ringLinks, signal } = this.#generation
    const digest = saltedDigest(chunksOfState(this.#parts.held.encode()), salt)
    const links = await Promise.allSettled(peers.map((peer) => ringLinks.reach(peer, signal)))
    const linked = peers.filter((_, i) => links[i]?.status === 'fulfilled')
    const proof = { type: 'proof', fence, generation, salt, digest: await digest, linked } as const
    if (!signal.aborted) this.#parts.send(proof)
  }

  async #reportDigest({ fence, generation, version }: Extract<MemberEffect, { type: 'report-digest' }>): Promise<void> {
    this.#parts.send({ type: 'version-digest', fence, generation, version, digest: await sha256Of(this.#encoded()) })
  }

  /** When an earlier upload is gone, a ring that goes on holds another version. */
  #upload(version: VersionRef): void {
    const { held, upload } = this.#parts
    const next = () => (held.version?.id === version.id ? upload(version, this.#encoded()) : undefined)
    this.#uploads.run(next).catch(() => undefined) // another member is asked in turn
  }

  /** Of committed steps, while they are kept; nothing when one of them is not. */
  sendSums(versions: readonly VersionRef[]): void {
    const { held, uploadSums } = this.#parts
    const last = versions.at(-1)
    if (last === undefined) return
    const sums = (): Float32Array[] => versions.flatMap((version) => held.reduced(version) ?? [])
    const whole = (): Uint8Array => joined(sums().length === versions.length ? sums() : [])
    this.#uploads.run(() => uploadSums(last, whole())).catch(() => undefined) // another member is asked in turn
  }

  #encoded(): Uint8Array {
    const state = this.#parts.held.encode()
    this.#parts.onEncoded(state)
    return state
  }

  #received(from: MemberId, frame: Frame): void {
    const fate = fateOf(this.#parts.core, from, frame)
    switch (fate) {
      case 'serve':
        return this.#server.serve(from, frame)
      case 'answer':
        return this.#fetch.accept(from, frame)
      case 'share':
        return this.#parts.shareBase?.(from, frame)
      case 'reduce':
        try {
          return this.#generation.accept(frame, from)
        } catch (error) {
          return this.#refuse(frame.generation, from, error)
        }
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

  /**
   * What came for a step does not fit: `from` sent it, unless it was another's of all that came (RankFailure).
   */
  #refuse(generation: number, from: MemberId, error: unknown): void {
    const blamed = (error instanceof RankFailure ? this.#parts.core.ring?.members[error.rank] : undefined) ?? from
    if (isGridError(error)) this.links.countRefusal(error.code, blamed)
    this.#generation.trouble(generation, { blamed: [blamed], why: 'refused' }, error)
  }

  #lost(member: MemberId, why: LinkTrouble | 'refused', error: GridError): void {
    this.#fetch.lost(member)
    const { ring } = this.#parts.core
    if (ring === undefined || !ring.linksOpen || !neighbours(ring).includes(member)) return
    this.#generation.trouble(ring.generation, { blamed: [member], why }, error)
  }

  #computeFailed(generation: number, error: unknown): void {
    if (error instanceof RankFailure) return this.#refuse(generation, this.#parts.core.id, error)
    if (!endsWork(error))
      return this.#generation.trouble(generation, { blamed: [this.#parts.core.id], why: 'own' }, error)
    this.#parts.onFatal(error)
  }
}

/** R18: the coordinator relays the links to sources that did not open. Where all did, this member is at fault. */
function causeOf(unreached: ReadonlySet<MemberId>): Blame {
  if (unreached.size === 0) return { blamed: [], why: 'own' }
  return { blamed: [...unreached].slice(0, MAX_DIRECT_MEMBERS - 1), why: 'unopened' }
}

/** How gradients enter exchanges, whatever the generation. */
function waysOf({ held, clock }: GenerationRunnerParts): Pick<GenerationParts, 'lossy' | 'buckets'> {
  const buckets = gradientBuckets(held.layout)
  const lossy = new LossyWays(held.layout.total, clock)
  return { lossy, buckets: buckets.length > 1 ? buckets : undefined }
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
