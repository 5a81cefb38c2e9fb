// One generation on one member, from the promise of its ballot on. It has its links, its reduces, its assignment of the
// step under way, and what came for the protocol to adopt or apply. To halt (R3) is to abort it and drop it. What it
// has under way ends with its signal, and nothing of it is in the next one.
import {
  type Clock,
  describeError,
  type Frame,
  type GradientEncoding,
  GridError,
  isGridError,
  type Manifest,
  type MemberId,
  type Sha256,
  type StepRecord,
  type ToCoordinator,
} from '@starling-grid/protocol'
import type { Feedback } from '../codec/encoding.ts'
import type { Compute } from '../compute.ts'
import type { Batches } from '../data/batch.ts'
import type { FloatRange } from '../floats.ts'
import type { LinkSet } from '../link/link-set.ts'
import type { LocalRounds } from '../local/local-round.ts'
import type { RoundWork } from '../local/round-work.ts'
import { mayContributeEarly, type StepId } from '../member/assignment.ts'
import type { MemberCore, MemberEffect, MemberInput, MemberGeneration } from '../member/member-state.ts'
import type { LocalVersion, DecodedVersion } from '../recovery/local-version.ts'
import type { Addressed, StepSum } from '../reduce/reduce.ts'
import { normOf } from '../reduce/slice-norms.ts'
import { StepReduces, type StepStanding } from '../reduce/step-reduces.ts'
import { type AssignmentResult, AssignmentWork, type WorkPace } from './assignment-work.ts'
import { type Blame, GenerationLinks } from './generation-links.ts'
import type { LossyWay, LossyWays } from './lossy-ways.ts'

/** What a job gives to its generations. */
export interface JobParts {
  readonly clock: Clock
  readonly core: Readonly<MemberCore>
  readonly held: LocalVersion
  readonly compute: Compute
  readonly batches: Pick<Batches, 'blockSamples' | 'blockTargets' | 'of'>
  /** in jobs with local rounds */
  readonly rounds: LocalRounds | undefined
  /** how gradients travel where FORM does not say it */
  readonly encoding: GradientEncoding
  send(message: ToCoordinator): void
  /** SHA-256, beside what this thread does meanwhile */
  digestOf(bytes: Uint8Array): Promise<Sha256>
  /** Σ gradients that this member was given (A1) */
  givenSum(id: number): Promise<Float32Array>
}

/** What outlives a generation. */
export interface GenerationParts extends JobParts {
  readonly links: LinkSet
  readonly pace: WorkPace
  readonly lossy: LossyWays
  /** what members contribute one by one; undefined: the gradient is too small to be worth several */
  readonly buckets: readonly FloatRange[] | undefined
  tell(input: MemberInput): void
}

/** The sum that `apply` uses next. `isOwn`: of this member's reduce, not fetched (R7). */
export interface StagedSum {
  readonly sum: Float32Array
  readonly isOwn: boolean
}

/** Characters of an ABORT's message. */
const MOST_TEXT = 300

export class Generation {
  readonly links: GenerationLinks
  /** sources of its target that no link was had to */
  readonly unreached = new Set<MemberId>()
  readonly #parts: GenerationParts
  readonly #ending = new AbortController()
  readonly #round: RoundWork | undefined
  /** from FORM on */
  #reduces: StepReduces | undefined
  #members: readonly MemberId[] = []
  /** of the step under way, until the next begins: frames are views of its gradient */
  #work: AssignmentWork | undefined
  /** until it is in an assignment */
  #given: { readonly id: number; readonly sum: Float32Array } | undefined
  /** samples of this member in the step under way */
  #contributed = 0
  #sum: StagedSum | undefined
  #state: DecodedVersion | undefined

  constructor(parts: GenerationParts) {
    const { signal } = this
    this.#parts = parts
    this.links = new GenerationLinks({ ...parts, self: parts.core.id, signal, trouble: this.trouble })
    this.#round = parts.rounds?.workOf({ ...parts, signal, contributeBucket: this.contributeBucket })
  }

  /** Raised when the generation is over. */
  get signal(): AbortSignal {
    return this.#ending.signal
  }

  /** R3: nothing that is under way has an effect any more. Links stay. */
  abort(): void {
    this.#ending.abort(new GridError('generation-stale', 'a new ballot began'))
  }

  /** The generation cannot go on from here (R17). */
  trouble = (generation: number, { blamed: members, why }: Blame, error: unknown): void => {
    const [blamed = null, ...alsoBlamed] = members
    const code = isGridError(error) ? error.code : 'link-lost'
    const message = describeError(error).slice(0, MOST_TEXT)
    this.tell({ type: 'trouble', generation, blamed, alsoBlamed, why, code, message })
  }

  /** All members have the same one (FORM). */
  get encoding(): GradientEncoding {
    const { core, encoding } = this.#parts
    return core.ring?.encoding ?? encoding
  }

  get lossy(): LossyWay | undefined {
    return this.#parts.lossy.of(this.encoding)
  }

  get tell(): GenerationParts['tell'] {
    return this.#parts.tell
  }

  get batches(): GenerationParts['batches'] {
    return this.#parts.batches
  }

  /** FORM. The reduces are ready before the first frame can come. */
  open(order: Extract<MemberEffect, { type: 'open-links' }>): void {
    const { ring } = this.#parts.core
    if (ring === undefined) return
    this.#members = ring.members
    this.#reduces = new StepReduces(this.#shapeOf(ring), ring.target.v + 1)
    this.links.open({ ...order, fence: ring.fence, members: ring.members })
  }

  #shapeOf(ring: MemberGeneration): ConstructorParameters<typeof StepReduces>[0] {
    const { held } = this.#parts
    const { lossy, encoding } = this
    const { generation, rank, weights, members } = ring
    const size = members.length
    const exchange = ring.exchange?.type ?? 'ring'
    const buckets = (ring.kind === 'round' ? this.#round?.buckets : undefined) ?? this.#parts.buckets
    if (this.#parts.buckets) lossy?.encodes?.open({ exchange, world: { rank, size }, buckets: this.#parts.buckets })
    const shape = { generation, rank, size, weights, encoding, exchange, length: held.layout.total }
    return { ...shape, harmless: this.#harmless, ...(buckets ? { buckets } : {}) }
  }

  /** A norm up to which the mean of the step's gradients is no longer than the parameters are. */
  #harmless = (step: number): number => {
    const { core, held, batches } = this.#parts
    return (
      (core.ring?.plan.get(step)?.blocks.length ?? 0) *
      batches.blockTargets *
      normOf(held.parameters, 0, held.parameters.length)
    )
  }

  /** This member's assignment of a step. The one before is over, or this step would not have begun. */
  assignmentOf(at: StepId): AssignmentWork {
    const { lossy } = this
    const { buckets: ranges } = this.#parts
    const encode = lossy?.encodes && (() => this.#feedback && lossy.encodes?.order(lossy.residual.residualEpoch))
    this.#work?.end()
    this.#work = new AssignmentWork(at, {
      ...this.#parts,
      signal: this.signal,
      early: ranges && { ranges, ...(encode ? { encode } : {}) },
      takeGiven: (id) => this.#takeGiven(id),
    })
    return this.#work
  }

  /** This member's part of a local round. Undefined: the generation ended before. */
  localRound(at: StepId): Promise<AssignmentResult | undefined> {
    if (this.#round === undefined) throw new Error('internal: a round in a job without local rounds')
    return this.#round.compute(at)
  }

  /** Others may have handed blocks over, or no member waits for another any more. */
  resume(): void {
    this.#work?.resume()
  }

  /** A1. What cannot be fetched is not contributed: the coordinator takes it back when its generation closes. */
  async fetchGiven(generation: number, id: number): Promise<void> {
    const sum = await this.#parts.givenSum(id).catch(() => undefined)
    if (sum === undefined || this.signal.aborted) return
    if (this.#given !== undefined) return // an earlier one waits for its assignment, which names its blocks already
    this.#given = { id, sum }
    this.tell({ type: 'given-fetched', generation, id })
  }

  #takeGiven(id: number): Float32Array | undefined {
    if (this.#given?.id !== id) return undefined
    const { sum } = this.#given
    this.#given = undefined
    return sum
  }

  /** Before the rest of the assignment is known. What may not leave now leaves with the rest (R9). */
  contributeBucket = (at: StepId, bucket: number, encoded?: readonly Uint8Array[]): void => {
    if (!mayContributeEarly(this.#parts.core, at)) return
    const reduce = this.#reduces?.at(at.step)
    this.#send(reduce?.contributeBucket(bucket, this.#contribution, this.#feedback, encoded))
  }

  /** What is left of the assignment, and its manifest. @throws what `contribute` of the reduces throws */
  contribute(step: number, manifest: Manifest): void {
    this.#contributed = manifest.samples
    this.#send(this.#reduces?.contribute(step, this.#contribution, manifest, this.#feedback))
  }

  /** @throws GridError or RankFailure: what came for a step does not fit */
  accept(frame: Frame, from: MemberId): void {
    this.#send(this.#reduces?.accept(frame, this.#members.indexOf(from)))
  }

  /** Resolves when every sum and manifest of the step arrived; never, when the generation ends before. */
  reduced(): Promise<StepSum> {
    return this.#reduces?.reduced() ?? new Promise(() => undefined)
  }

  /** What came of a step, and from which ranks more is to come. */
  standing(step: number): StepStanding {
    return this.#reduces?.standing(step) ?? { received: 0, waitsFor: [] }
  }

  get digestOf(): JobParts['digestOf'] {
    return this.#parts.digestOf
  }

  /** What the record of this step will ask of `apply` follows from the manifests and the plan. */
  prepare({ kind, step }: StepId & Pick<StepRecord, 'kind'>, { sum, manifests }: StepSum): void {
    const { core, held } = this.#parts
    const scaling = core.ring?.plan.get(step)?.scaling
    const targets = manifests.reduce((total, manifest) => total + manifest.targets, 0)
    if (core.version?.v === step - 1) held.prepare({ kind, targets, ...(scaling ? { scaling } : {}) }, sum)
  }

  stage(sum: StagedSum): void {
    this.#sum = sum
  }

  /** R10: for `apply`, which uses it in one piece. `samples`: of this member in it. */
  takeSum(): StagedSum & { readonly samples: number } {
    if (this.#sum === undefined) throw new Error('internal: nothing staged to apply')
    const taken = { ...this.#sum, samples: this.#contributed }
    this.#sum = undefined
    this.#contributed = 0
    return taken
  }

  /** undefined: version 0, which needs no source */
  stageState(state: DecodedVersion | undefined): void {
    this.#state = state
  }

  takeState(): DecodedVersion | undefined {
    const state = this.#state
    this.#state = undefined
    return state
  }

  /** Σ gradients or a round's difference; it stays as it is until the step or the generation is over. */
  get #contribution(): Float32Array {
    const { core, rounds } = this.#parts
    if (core.ring?.kind === 'round' && rounds) return rounds.contribution
    if (this.#work === undefined) throw new Error('internal: no assignment is under way')
    return this.#work.gradient
  }

  /** The same all through a step. */
  get #feedback(): Feedback | undefined {
    const { core, held } = this.#parts
    return held.version && this.lossy?.residual.from(held.version, core.ring?.kind ?? 'ring')
  }

  #send(frames: readonly Addressed[] = []): void {
    for (const { to, frame } of frames) {
      const member = this.#members[to]
      if (member !== undefined) this.#parts.links.send(member, frame)
    }
  }
}
