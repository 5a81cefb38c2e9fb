// Everything of a volunteer that belongs to one job: model, executor, data, the held version, and the three ways to
// work on it.
import {
  decodeVector,
  embeddingTables,
  encodedVectorBytes,
  inputTables,
  type ModelSpec,
  modelHash,
  outerOptimizer,
  type ParameterLayout,
  parameterLayout,
  parseModelSpec,
  readParameters,
  targetsPerSample,
} from '@starling-grid/model'
import {
  type BlockId,
  describeError,
  encodingAtFirst,
  GridError,
  genesis,
  type HashList,
  isGridError,
  type JobTerms,
  type MemberId,
  type MessageFrom,
  type MessageTo,
  requirementsOf,
  requirePossible,
  type ToCoordinator,
  type ToVolunteer,
  type VersionRef,
  sha256Of,
} from '@starling-grid/protocol'
import type { AsyncMode, AsyncParts, openAsyncMode, PulledBase, PulledRound } from './async/async-mode.ts'
import { pullRows } from './async/pull-rows.ts'
import { validateLeases } from './async/validation.ts'
import { Compute, type NamedParameters } from './compute.ts'
import type { CoordinatorHttp } from './coordinator-http.ts'
import { Batches } from './data/batch.ts'
import { Shards } from './data/shards.ts'
import { allFinite } from './floats.ts'
import { GenerationRunner, type GenerationRunnerParts } from './generation/generation-runner.ts'
import type { Executor, ExecutorBounds } from './graph/executor.ts'
import type { VolunteerHost } from './host.ts'
import { asyncModes, baseModels, localRounds } from './late-parts.ts'
import type { PeerLink, PeerNetwork } from './link/peer-link.ts'
import type { openLocalRounds } from './local/local-round.ts'
import type { MemberCore, ControlMessage } from './member/member-state.ts'
import { claimOf, createMember, goOnFrom } from './member/member.ts'
import { DEFAULT_LIMITS, executorBytes, requireBlockWork, SMALLEST_STORAGE } from './own-limits.ts'
import { requireInitial } from './recovery/catch-up.ts'
import { KeptState } from './recovery/kept-state.ts'
import { LocalVersion } from './recovery/local-version.ts'
import { UploadShare } from './recovery/upload-share.ts'
import { requireAdapter, requireMemory, unmetWithoutAdapter } from './requirements.ts'
import { toldAdapter } from './told-adapter.ts'
import type { TunedBase, TunedBaseParts } from './tuned-base.ts'

export interface JobSessionParts extends Pick<TunedBaseParts, 'seekBase' | 'onBase'> {
  readonly host: VolunteerHost
  readonly self: MemberId
  readonly http: CoordinatorHttp
  readonly network: PeerNetwork
  readonly linkOpenMs: number | undefined
  /** the executor lost its device, and goes on with a new one */
  onDeviceLost(): void
  openRelay(member: MemberId, signal: AbortSignal): Promise<PeerLink>
  send(message: ToCoordinator): void
  onChange(): void
  /** samples of mine that the parameter server took, and their mean loss */
  onPushed(samples: number, loss: number): void
  /** work failed in a way that no request explains: fatal.ts says whether that ends the volunteer or the session */
  onFatal(error: unknown): void
}

/** Room for names and shapes beside the parameters. */
const HEADER_BYTES = 1024 * 1024

/** What a volunteer takes itself: before it has a job, or about which. */
type BeforeJob =
  | 'challenge'
  | 'welcome'
  | 'coordinators'
  | 'moved'
  | 'refused'
  | 'ice-servers'
  | 'job'
  | 'base-sources'
  | 'wait'
  | 'finished'

/** Orders that end what is under way: the others belong to a generation that goes on. */
const ENDS_WORK: ReadonlySet<string> = new Set<ControlMessage['type']>([
  'freeze',
  'form',
  'start',
  'upload-request',
  'async',
])

function parametersBytes({ total }: ParameterLayout): number {
  return Float32Array.BYTES_PER_ELEMENT * total + HEADER_BYTES
}

/** @throws GridError 'version-corrupt' */
function halvesOf(bytes: Uint8Array, { total }: ParameterLayout, { v }: VersionRef): Float32Array {
  const parameters = new Float32Array(total)
  decodeVector(bytes, 'f16', parameters)
  if (allFinite(parameters)) return parameters
  throw new GridError('version-corrupt', `expected finite parameters of version ${v}, got NaN or infinity`)
}

/** @throws GridError 'gradient-shape', 'gradient-not-finite' */
function floatsOf(bytes: Uint8Array, length: number): Float32Array {
  if (bytes.byteLength !== Float32Array.BYTES_PER_ELEMENT * length)
    throw new GridError('gradient-shape', `expected a sum of ${length} floats, got ${bytes.byteLength} bytes`)
  const floats = new Float32Array(bytes.slice().buffer)
  if (!allFinite(floats)) throw new GridError('gradient-not-finite', 'expected a finite given sum, got NaN or infinity')
  return floats
}

/** Before anything is fetched or allocated. @throws GridError 'shard-corrupt' */
function requireDataOf(spec: ModelSpec, { dataset, blockSamples }: JobTerms): void {
  const [wanted, got] = [spec.input.join(' × '), dataset.inputShape.join(' × ')]
  if (wanted !== got)
    throw new GridError(
      'shard-corrupt',
      `expected samples of ${wanted}, as the model takes them, got a dataset of ${got}`,
    )
  requirePossible(dataset, blockSamples)
}

/** @throws GridError 'cancelled' */
function requireWanted(signal: AbortSignal): void {
  if (signal.aborted) throw new GridError('cancelled', 'another job came first')
}

/**
 * A part of the program that a page fetches when it is needed: a request like any other. @throws GridError
 * 'coordinator-lost'
 */
function loaded<T>(part: Promise<T>): Promise<T> {
  return part.catch((cause: unknown) => {
    throw new GridError('coordinator-lost', 'expected a part of this program, got no answer; reload the page', {
      cause,
    })
  })
}

/** The coordinator answered, and what it has is missing or damaged. Lines that break say nothing of a shard. */
function reportUnreadable(blocks: readonly BlockId[], error: unknown, send: (message: ToCoordinator) => void): void {
  if (!isGridError(error) || (error.code !== 'shard-corrupt' && error.code !== 'message-unexpected')) return
  send({
    type: 'unreadable',
    blocks: blocks.slice(0, MOST_REPORTED),
    code: error.code,
    message: describeError(error).slice(0, MOST_TEXT),
  })
}
const MOST_REPORTED = 256
const MOST_TEXT = 300

interface PreparedJob {
  readonly terms: JobTerms
  readonly spec: ModelSpec
  readonly parts: JobSessionParts
  readonly executor: Compute['executor']
  /** of jobs that tune an imported model */
  readonly base: TunedBase | undefined
  /** of jobs with local rounds */
  readonly openRounds: typeof openLocalRounds | undefined
  readonly openAsync: typeof openAsyncMode
}

export class JobSession {
  readonly terms: JobTerms
  readonly spec: ModelSpec
  readonly core: MemberCore
  readonly compute: Compute
  readonly runner: GenerationRunner
  readonly #parts: JobSessionParts
  readonly #held: LocalVersion
  readonly #batches: Batches
  readonly #async: AsyncMode
  readonly #kept: KeptState
  readonly #base: TunedBase | undefined
  /** of a ring (A1): its base is a checkpoint, of which rows are not served */
  #isOffRing = false
  /** the newest order: those before it are void */
  #validating: MessageTo<'validate'> | undefined
  #isStopped = false
  /** what the member is doing beside the ring: shown to people */
  activity: { readonly phase: 'computing' | 'exchanging' | 'validating'; readonly detail: string } | undefined

  /**
   * @throws GridError 'model-hash', 'model-invalid', 'no-adapter', 'adapter-limit', 'no-f16', 'shard-corrupt',
   * 'own-limit', 'requirement-unmet',
   * 'cancelled'; whatever failed, the executor is released
   */
  static async prepare(terms: JobTerms, parts: JobSessionParts, signal: AbortSignal): Promise<JobSession> {
    const spec = parseModelSpec(terms.model)
    requireDataOf(spec, terms)
    const found = modelHash(spec)
    if (found !== terms.modelHash)
      throw new GridError(
        'model-hash',
        `expected the coordinator's model ${terms.modelHash.slice(0, 12)}, got ${found.slice(0, 12)}; ` +
          'update volunteer or coordinator, the older one',
      )
    const limits = parts.host.limits ?? DEFAULT_LIMITS
    const requires = requirementsOf(terms)
    requireMemory(requires, limits)
    executorBytes(spec, limits, SMALLEST_STORAGE)
    requireBlockWork(spec, terms.blockSamples, limits)
    // pages load it when there is such a job
    const [{ openAsyncMode }, library] = await loaded(Promise.all([asyncModes(), terms.local && localRounds()]))
    const { blockSamples, precision = 'f32' } = terms
    const base = spec.base === undefined ? undefined : await (await loaded(baseModels())).openTunedBase(spec, parts)
    let executor: Executor
    try {
      requireWanted(signal)
      const maxBytes = executorBytes(spec, limits, base?.frozen?.packed?.storage)
      const needsF16 = requires.f16 === true
      const { host, http } = parts
      const bounds: ExecutorBounds = {
        precision,
        needsF16,
        maxBytes,
        frozen: base?.frozen,
        // One that hides its address does not show the class of its adapter either.
        variants: host.relaysOnly === true ? undefined : (...asked) => http.variants(...asked),
        onDeviceLost: () => parts.onDeviceLost(),
      }
      executor = await parts.host.createExecutor(spec, blockSamples, bounds).catch((error: unknown) => {
        throw unmetWithoutAdapter(requires, error)
      })
    } finally {
      base?.close()
    }
    const opened = { openRounds: library?.openLocalRounds, openAsync: openAsyncMode }
    const session = new JobSession({ terms, spec, parts, executor, base, ...opened })
    try {
      requireAdapter(requires, executor.adapter)
      await session.#warmUp(signal)
      return session
    } catch (error) {
      session.stop()
      throw error
    }
  }

  async #warmUp(signal: AbortSignal): Promise<void> {
    const trial = await this.#batches.trial(this.terms.blockSamples)
    requireWanted(signal)
    await this.compute.measure(trial)
    requireWanted(signal)
    await this.#goOnFromKept()
    requireWanted(signal)
  }

  private constructor({ terms, spec, parts, executor, base, openRounds, openAsync }: PreparedJob) {
    this.terms = terms
    this.#base = base
    this.spec = spec
    this.#parts = parts
    const { clock } = parts.host
    const { optimizer, clipNorm, local } = terms
    this.#held = new LocalVersion({ spec, optimizer, clipNorm, ...(local ? { outer: outerOptimizer(local) } : {}) })
    this.compute = new Compute(executor, this.#held, clock)
    this.#batches = new Batches(
      terms,
      new Shards(terms.dataset, (name) => parts.http.shard(name), parts.host.shards),
      spec,
      (blocks, error) => reportUnreadable(blocks, error, this.#send),
    )
    this.#kept = new KeptState(parts.host.shards, terms.id, clock)
    const first = genesis(terms.id, terms.modelHash, terms.seed, terms.initial)
    this.core = createMember(parts.self, first, this.#held.replayMost)
    const layout = parameterLayout(spec)
    const rounds =
      local &&
      openRounds?.(
        {
          rule: { layout, optimizer },
          clipNorm,
          innerSteps: local.innerSteps,
          compute: this.compute,
          batches: this.#batches,
          targetsOf: this.#targetsOf,
        },
        local.fragments,
      )
    this.runner = this.#openRunner({ first, layout, rounds })
    base?.moveTo(this.runner.links)
    this.#async = openAsync(this.#asyncParts(layout, rounds))
  }

  #openRunner({
    first,
    layout,
    rounds,
  }: Pick<GenerationRunnerParts, 'rounds'> & {
    readonly first: VersionRef
    readonly layout: ParameterLayout
  }): GenerationRunner {
    const { terms } = this
    const { http, host, network, linkOpenMs, openRelay, onChange } = this.#parts
    const { uploadBytesPerHour } = host.limits ?? DEFAULT_LIMITS
    const uploads = this.#base?.uploads ?? new UploadShare(host.clock, uploadBytesPerHour)
    const shards = this.#base?.server
    return new GenerationRunner({
      clock: host.clock,
      digestOf: host.digestOf ?? sha256Of,
      core: this.core,
      held: this.#held,
      compute: this.compute,
      batches: this.#batches,
      rounds,
      network,
      linkOpenMs,
      openRelay,
      genesis: first,
      seed: terms.seed,
      initial: terms.initial,
      encoding: encodingAtFirst(terms),
      uploads,
      shareBase: shards && ((from, frame) => void shards.serve(from, frame)),
      send: this.#send,
      onChange,
      onFatal: this.#failed,
      witness: host.witness?.(terms),
      givenSum: async (id) =>
        floatsOf(await http.givenSum(terms.id, id, Float32Array.BYTES_PER_ELEMENT * layout.total), layout.total),
      onEncoded: (state) => void (this.#kept.due && this.#keep(state)),
      fromCoordinator: (version, { from, maxBytes }) => http.state(terms.id, version, { from, maxBytes }),
      upload: (version, bytes) => http.upload(terms.id, version, bytes),
      uploadSums: (version, bytes) => http.sums(terms.id, version, bytes),
    })
  }

  #asyncParts(layout: ParameterLayout, rounds: GenerationRunnerParts['rounds']): AsyncParts {
    const { terms, spec } = this
    const { http, host, self, onPushed } = this.#parts
    return {
      clock: host.clock,
      self,
      layout,
      rounds,
      tables: embeddingTables(spec, layout),
      lookups: inputTables(spec, layout),
      compute: this.compute,
      batches: this.#batches,
      send: this.#send,
      onFatal: this.#failed,
      onPushed,
      encoding: encodingAtFirst(terms),
      pullRoundBase: (asked, signal) => this.#pullRoundBase(asked, signal),
      pull: (version, rows) =>
        rows === undefined || this.#isOffRing
          ? this.#pull(version)
          : pullRows(version, rows, { layout, ask: (wanted) => http.rows(terms.id, version, wanted) }),
      push: (push, gradient) => http.push(terms.id, push, gradient),
      onActivity: (phase, detail) => this.#show({ phase, detail }),
    }
  }

  /** What fails because this session ends, such as links and computations, is of no interest to the coordinator. */
  #send = (message: ToCoordinator): void => {
    if (!this.#isStopped) this.#parts.send(message)
  }

  /** Where the base came from; undefined: it was here, or there is none. */
  get baseFrom(): string | undefined {
    return this.#base?.from()
  }

  get ready(): MessageFrom<'ready'> {
    const { executor, samplesPerSecond } = this.compute
    const { version } = this.core
    return {
      type: 'ready',
      modelHash: this.terms.modelHash as MessageFrom<'ready'>['modelHash'],
      adapter: toldAdapter(executor.adapter),
      samplesPerSecond,
      ...(version ? { holds: version } : {}),
      ...(this.#parts.host.relaysOnly === true ? { relaysOnly: true } : {}),
    }
  }

  /** The coordinator says something about the run. */
  heard(message: Exclude<ToVolunteer, { type: BeforeJob }>): void {
    if (message.type === 'validate') return void this.#validate(message).catch(this.#failed)
    if (message.type === 'grant') return this.#granted(message)
    if (message.type === 'appended') return this.#batches.append(message)
    if (message.type === 'sums-request') return this.runner.sendSums(message.versions)
    if (message.type === 'share-base') return this.runner.links.welcome(message.member)
    if (ENDS_WORK.has(message.type)) this.#rest()
    this.runner.order(message)
  }

  /**
   * A warm start: what it held when it was here last, with its proof (R4). What is damaged, or of another model, is
   * fetched anew.
   */
  async #goOnFromKept(): Promise<void> {
    const kept = await this.#kept.read()
    if (kept === undefined) return
    try {
      const state = this.#held.decode(kept.state)
      if (goOnFrom(this.core, kept.claim, state.version)) this.#held.adopt(state, state.version)
    } catch (error) {
      if (!isGridError(error)) throw error
    }
  }

  /** For the next visit. */
  async keep(): Promise<void> {
    if ((this.#held.version?.v ?? 0) > 0) await this.#keep(this.#held.encode())
  }

  async #keep(state: Uint8Array): Promise<void> {
    const claim = claimOf(this.core)
    if (claim !== null) await this.#kept.keep({ state, claim })
  }

  /** The next visit begins with nothing. */
  async forget(): Promise<void> {
    await this.#kept.forget()
  }

  /**
   * Work that was under way when the session stopped may fail for want of its executor: the session is over, and no
   * failure.
   */
  #failed = (error: unknown): void => {
    if (!this.#isStopped) this.#parts.onFatal(error)
  }

  /** Before the volunteer leaves: what may not be lost with it is sent. */
  leave(): Promise<void> {
    return this.#async.leave()
  }

  stop(): void {
    this.#isStopped = true
    this.#async.stop()
    this.runner.stop()
    this.compute.executor.destroy()
  }

  /** Of blocks that are not computed yet. */
  #targetsOf = async (blocks: readonly BlockId[]): Promise<number> => {
    const { ignore_index: ignored } = this.spec
    if (ignored === undefined) return this.#batches.samplesOf(blocks) * targetsPerSample(this.spec)
    let count = 0
    for (const block of blocks)
      for (const label of (await this.#batches.of([block])).y) count += Number(label !== ignored)
    return count
  }

  #granted(grant: MessageTo<'grant'>): void {
    this.#isOffRing = grant.offRing === true
    if (grant.modeEpoch === this.core.asyncEpoch) void this.#async.granted(grant).catch(this.#failed)
  }

  /** A new ballot or mode: what was under way for the old one ends. */
  #rest(): void {
    this.#async.stop()
    this.activity = undefined
  }

  async #validate(message: MessageTo<'validate'>): Promise<void> {
    this.#validating = message
    this.#show({ phase: 'validating', detail: `version ${message.version.v}` })
    try {
      await validateLeases(message, {
        compute: this.compute,
        batches: this.#batches,
        send: this.#send,
        parametersOf: (version) => this.#parametersOf(version),
        isStale: () => this.#validating !== message,
      })
    } finally {
      if (this.activity?.phase === 'validating') this.activity = undefined
      this.#parts.onChange()
    }
  }

  async #parametersOf(version: VersionRef): Promise<NamedParameters> {
    // the next steps overwrite what is held
    if (this.#held.version?.id === version.id) return { version, parameters: this.#held.parameters.slice() }
    return this.#pull(version)
  }

  /** Version 0 is what its digest says, to the last bit. */
  async #pullRoundBase({ version, sources, encoding }: PulledRound, signal: AbortSignal): Promise<PulledBase> {
    const { id } = this.terms
    if (version.v === 0) return { ...(await this.#pull(version)), unserved: [] }
    const { http } = this.#parts
    const layout = parameterLayout(this.spec)
    const as = encoding === 'f32' ? 'f32' : 'f16'
    const maxBytes = as === 'f32' ? parametersBytes(layout) : encodedVectorBytes(layout.total, 'f16')
    const hashes = (): Promise<HashList> => http.hashesOfBase(id, version, { as, maxBytes })
    const rest = (from: number): Promise<Uint8Array> => http.roundBase(id, version, { as, maxBytes, from })
    const { bytes, unserved } = await this.runner.roundBase({ version, sources, hashes, rest }, signal)
    return {
      version,
      unserved,
      parameters: as === 'f32' ? readParameters(bytes, layout) : halvesOf(bytes, layout, version),
    }
  }

  async #pull(version: VersionRef): Promise<NamedParameters> {
    const layout = parameterLayout(this.spec)
    const bytes = await this.#parts.http.parameters(this.terms.id, version, parametersBytes(layout))
    const parameters = readParameters(bytes, layout)
    const { initial } = this.terms
    if (version.v === 0 && initial !== undefined) await requireInitial(parameters, initial)
    return { version, parameters }
  }

  #show(activity: JobSession['activity']): void {
    this.activity = activity
    this.#parts.onChange()
  }
}
