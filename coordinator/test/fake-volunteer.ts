// A volunteer that follows the protocol without data and without a GPU. Its gradient is a function of the step, so that
// all fakes hold equal bytes without an exchange. Tests change single answers of it.
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto'
import { request } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import {
  encodeVersionState,
  initialVersionState,
  parameterLayout,
  parseModelSpec,
  type VersionForm,
} from '@starling-grid/model'
import {
  allRecords,
  type BlockId,
  blockIndex,
  blockRanges,
  chunksOfState,
  decodeToVolunteer,
  encode,
  extend,
  fold,
  genesis,
  helloText,
  type Incarnation,
  type JobId,
  type JobTerms,
  type MemberId,
  type MessageTo,
  named,
  newIncarnation,
  type OnWire,
  pathTo,
  type PlanStep,
  PROTOCOL_VERSION,
  type PushHeader,
  PUSH_HEADER,
  ROUTES,
  saltedDigest,
  type StepRecord,
  type ToCoordinator,
  type ToVolunteer,
  type VersionRef,
} from '@starling-grid/protocol'
import { applyUpdate, meanGradient } from '@starling-grid/shaders'
import { WebSocket } from 'ws'
import { nameOf } from '../src/blobs/blob-name.ts'

const HEARTBEAT_MS = 500
/** of a step and of a push: what waits meanwhile has the core */
const STEP_MS = 10
const CREATED = 201
/** of silence, before a test fails by name instead of by its runner's limit */
const GIVE_UP_MS = 60_000

export interface FakeOptions {
  readonly name?: string
  /** the same member on another socket */
  readonly self?: FakeSelf
  /** its hello names this job */
  readonly job?: string
  /** ms per step of the ring */
  readonly stepMs?: number
  /** what a step of the ring waits for besides */
  readonly beforeStep?: (step: number) => Promise<unknown> | undefined
  /** ms per upload, which training does not wait for */
  readonly uploadMs?: number
  /** false: says hello and nothing more by itself */
  readonly obedient?: boolean
  /** false: asks for leases, and leaves what is granted to the test */
  readonly works?: boolean
  /** opens no direct link */
  readonly relaysOnly?: true
  /** false: has no sums of committed steps */
  readonly sums?: false
  /** what a liar says instead; undefined: nothing */
  readonly change?: (message: ToCoordinator, liar: FakeVolunteer) => ToCoordinator | undefined
  /** what a liar uploads instead of its state */
  readonly forge?: (state: Uint8Array, liar: FakeVolunteer) => Uint8Array
}

export interface FakeSelf extends Incarnation {
  readonly key: KeyObject
}

/** A new member; of this key, or of one of its own. */
export function newFakeSelf(key = generateKeyPairSync('ed25519').privateKey): FakeSelf {
  const { x = '' } = key.export({ format: 'jwk' })
  return { ...newIncarnation(Buffer.from(x, 'base64url')), key }
}

/** A hello of the right form that proves nothing. */
export function unprovenHello(change: Record<string, unknown> = {}): Record<string, unknown> {
  const { key: _, ...self } = newFakeSelf()
  return {
    type: 'hello',
    protocol: PROTOCOL_VERSION,
    name: 'x',
    client: 'node',
    ...self,
    coordinator: 'localhost',
    signature: '0'.repeat(128),
    ...change,
  }
}

/**
 * Parameters, optimizer state and chain at one version: `records` follow `base`, the last version that was
 * acknowledged.
 */
interface Held {
  version: VersionRef
  base: VersionRef
  records: StepRecord[]
  parameters: Float32Array
  optimizerState: ReturnType<typeof initialVersionState>['optimizerState']
}

export class FakeVolunteer {
  readonly self: FakeSelf
  readonly messages: OnWire<ToVolunteer>[] = []
  /** what went out by hello() and raw() */
  readonly said: unknown[] = []
  readonly closed: Promise<number>
  readonly #url: string
  readonly #options: FakeOptions
  readonly #waiting = new Set<() => void>()
  readonly socket: WebSocket
  terms: JobTerms | undefined
  session = ''
  held: Held | undefined
  /** what is other in the hello that waits for its challenge */
  #hello: Record<string, unknown> | undefined
  #form: VersionForm | undefined
  #ballot = { fence: 0, generation: 0 }
  #modeEpoch = 0
  /** raised by every freeze: older steps stop */
  #transition = 0
  #beat: ReturnType<typeof setInterval> | undefined
  /** pushes that were received, in async mode */
  pushes = 0

  constructor(url: string, options: FakeOptions = {}) {
    this.#url = url
    this.#options = options
    this.self = options.self ?? newFakeSelf()
    this.socket = new WebSocket(`${url.replace(/^http/, 'ws')}${ROUTES.volunteer}`)
    this.closed = new Promise((resolve) =>
      this.socket.on('close', (code) => {
        clearInterval(this.#beat)
        this.#changed()
        resolve(code)
      }),
    )
    this.socket.on('error', () => undefined) // close follows
    if (options.obedient !== false) this.hello()
    this.socket.on('message', (data) => this.#heard(decodeToVolunteer(String(data))))
  }

  get id(): MemberId {
    return this.self.incarnation
  }

  /** Once the challenge is there. */
  hello(change: Record<string, unknown> = {}): void {
    this.#hello = change
    if (this.messages.some(({ type }) => type === 'challenge')) this.#answer()
  }

  /** Of this socket's challenge, for a coordinator of that name. */
  signatureFor(coordinator: string): string {
    const challenge = this.messages.find((message) => message.type === 'challenge')
    return sign(
      null,
      helloText({ nonce: challenge?.nonce ?? '', coordinator, incarnation: this.id }),
      this.self.key,
    ).toString('hex')
  }

  #answer(): void {
    if (this.#hello === undefined) return
    const { name = 'fake', self: given, job } = this.#options
    const { key: _, ...self } = this.self
    const coordinator = new URL(this.#url).host
    const signature = this.signatureFor(coordinator)
    this.raw({
      type: 'hello',
      protocol: PROTOCOL_VERSION,
      ...self,
      name,
      client: 'node',
      coordinator,
      signature,
      ...(given === undefined ? {} : { again: true }),
      ...(job === undefined ? {} : { job }),
      ...this.#hello,
    })
    this.#hello = undefined
  }

  ready(): void {
    if (this.terms === undefined) return
    this.send({
      type: 'ready',
      modelHash: this.terms.modelHash,
      adapter: { name: 'fake', vendor: 'test', software: true, executor: 'reference' },
      samplesPerSecond: 100,
      ...(this.#options.relaysOnly ? { relaysOnly: true as const } : {}),
    })
    this.#beat ??= setInterval(
      () =>
        this.send({ type: 'heartbeat', samplesPerSecond: 100, activity: 'computing', bytesSent: 0, bytesReceived: 0 }),
      HEARTBEAT_MS,
    )
  }

  send(message: ToCoordinator): void {
    const { change } = this.#options
    const said = change === undefined ? message : change(message, this)
    if (said !== undefined) this.say(said)
  }

  /** As it is. */
  say(message: ToCoordinator): void {
    if (this.socket.readyState === WebSocket.OPEN && this.terms !== undefined)
      this.socket.send(encode(named(this.terms.id, message)))
  }

  /** Whatever a stranger may send. */
  raw(message: unknown): void {
    this.said.push(message)
    this.socket.send(typeof message === 'string' ? message : JSON.stringify(message))
  }

  close(): void {
    this.socket.close()
  }

  /** The first message of this type, past or future. */
  async heard<T extends ToVolunteer['type']>(
    type: T,
    matches: (message: MessageTo<T>) => boolean = () => true,
  ): Promise<MessageTo<T>> {
    for (;;) {
      const found = this.messages.find(
        (message): message is Extract<OnWire<ToVolunteer>, { type: T }> =>
          message.type === type && matches(message as MessageTo<T>),
      )
      if (found !== undefined) return found as MessageTo<T>
      if (this.socket.readyState === WebSocket.CLOSED)
        throw new Error(
          `the socket closed before ${type}; heard ` +
            `${this.messages.map((message) => JSON.stringify(message).slice(0, 120)).join('\n')}`,
        )
      await this.next(type)
    }
  }

  /** The next message of any type, or the end of the socket. */
  next(awaited: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () =>
          reject(new Error(`gave up waiting for ${awaited}; heard ${this.messages.map(({ type }) => type).join(' ')}`)),
        GIVE_UP_MS,
      )
      this.#waiting.add(() => {
        clearTimeout(timer)
        resolve()
      })
    })
  }

  #changed(): void {
    for (const resolve of this.#waiting) resolve()
    this.#waiting.clear()
  }

  #heard(message: OnWire<ToVolunteer>): void {
    this.messages.push(message)
    if (message.type === 'challenge') this.#answer()
    if (message.type === 'welcome') this.session = message.session
    if (message.type === 'welcome' || message.type === 'job') this.#take(message.job)
    const isOfAnother = 'job' in message && typeof message.job === 'string' && message.job !== this.terms?.id
    if (this.#options.obedient !== false && !isOfAnother) this.#obey(message)
    this.#changed()
  }

  /** what it held of other jobs: it comes back to them warm */
  readonly #heldOf = new Map<JobId, Held | undefined>()

  #take(terms: JobTerms | null): void {
    if (terms === null) return
    if (this.terms !== undefined && this.terms.id !== terms.id) {
      this.#transition++
      this.#heldOf.set(this.terms.id, this.held)
      this.held = this.#heldOf.get(terms.id)
    }
    this.terms = terms
    const spec = parseModelSpec(terms.model)
    this.#form = { spec, layout: parameterLayout(spec), optimizer: terms.optimizer }
    if (this.#options.obedient !== false) this.ready()
  }

  #obey(message: ToVolunteer): void {
    switch (message.type) {
      case 'freeze':
        this.#transition++
        this.#ballot = { fence: message.fence, generation: message.generation }
        return this.send({
          type: 'state',
          ...this.#ballot,
          claim: this.held === undefined ? null : { base: this.held.base, records: this.held.records },
        })
      case 'form':
        return void this.#reach(message).catch(() => undefined) // killed: the socket closes, too
      case 'start':
        this.#plan.clear()
        this.#until = Number.POSITIVE_INFINITY
        this.#acknowledge(message.after)
        return this.#goOn(message.plan)
      case 'plan':
        return this.#goOn(message.steps)
      case 'last-step':
        this.#until = message.step
        return
      case 'ack':
        return this.#acknowledge(message.committed)
      case 'checkpoint-at':
        return this.#checkpoint(message)
      case 'copy-at':
        this.#copyAt = message
        return this.#maybeCopy()
      case 'prefetch':
        if (message.anew === true) this.held = undefined
        return void this.#fetch(message).catch(() => undefined)
      case 'follow':
        for (const record of message.records) if (record.v === (this.held?.version.v ?? 0) + 1) this.#apply(record)
        this.#maybeProve()
        return this.send({ type: 'prefetched', ...this.#ballot, version: this.held?.version ?? null })
      case 'prove':
        this.#proving = message
        return this.#maybeProve()
      case 'upload-request':
        if (message.uploader === this.id) return void this.#uploadInTurn(message.version)
        return this.send({
          type: 'version-digest',
          ...this.#ballot,
          version: message.version,
          digest: nameOf(this.stateBytes()),
        })
      case 'validate':
        for (const lease of message.leases) {
          const { samples } = this.#range(lease.block, 'validation')
          this.send({
            type: 'validated',
            version: message.version,
            lease,
            samples,
            targets: samples,
            correct: samples >> 1,
            lossSum: samples / 2,
          })
        }
        return
      case 'sums-request':
        return void this.#sendSums(message.versions).catch(() => undefined)
      case 'async':
        this.#transition++
        this.#ballot = { fence: message.fence, generation: message.generation }
        this.#modeEpoch = message.modeEpoch
        return this.send({ type: 'lease-request', modeEpoch: message.modeEpoch })
      case 'grant':
        return this.#options.works === false ? undefined : void this.#compute(message)
      default:
    }
  }

  /** Fakes need no state to be fetched: every step is a function of its record. */
  async #reach({ target, records, committed, modeEpoch }: MessageTo<'form'>): Promise<void> {
    this.#modeEpoch = modeEpoch
    if ((this.held?.version.v ?? 0) > target.v) this.held = undefined // it alone held a step, which is repeated (R5)
    this.held ??= this.#initial()
    const { held } = this
    const missing = held.version.v < committed.v ? await this.#chain() : []
    for (const record of [...missing, ...records])
      if (record.v === held.version.v + 1 && record.v <= target.v) this.#apply(record)
    if (this.held.version.id === target.id)
      this.send({ type: 'confirm', ...this.#ballot, version: target, digest: nameOf(this.stateBytes()) })
  }

  #copyAt: MessageTo<'copy-at'> | undefined
  #proving: MessageTo<'prove'> | undefined

  #maybeCopy(): void {
    const { held } = this
    if (this.#copyAt === undefined || held?.version.v !== this.#copyAt.v) return
    const { salt } = this.#copyAt
    this.#copyAt = undefined
    const { version } = held
    void saltedDigest(chunksOfState(this.stateBytes()), salt).then((found) =>
      this.send({ type: 'copied', ...this.#ballot, version, digest: found }),
    )
  }

  /** The version of a `prefetch`, which is the chain up to there. */
  async #fetch({ version }: MessageTo<'prefetch'>): Promise<void> {
    this.held ??= this.#initial()
    const { held } = this
    for (const record of held.version.v < version.v ? await this.#chain() : [])
      if (record.v === held.version.v + 1 && record.v <= version.v) this.#apply(record)
    this.#acknowledge(version)
    this.send({ type: 'prefetched', ...this.#ballot, version })
    this.#maybeProve()
  }

  #maybeProve(): void {
    if (this.#proving === undefined || this.held?.version.v !== this.#proving.v) return
    const { salt, peers, fence, generation } = this.#proving
    this.#proving = undefined
    void saltedDigest(chunksOfState(this.stateBytes()), salt).then((found) =>
      this.send({ type: 'proof', fence, generation, salt, digest: found, linked: peers }),
    )
  }

  async #chain(): Promise<StepRecord[]> {
    return allRecords(this.terms?.id ?? '', async (path) => (await this.request(path)).json())
  }

  readonly #plan = new Map<number, readonly BlockId[]>()
  /** no step after this one begins */
  #until = Number.POSITIVE_INFINITY
  #training: number | undefined

  #goOn(steps: readonly PlanStep[]): void {
    for (const { step, blocks } of steps) this.#plan.set(step, blocks)
    if (this.#training === this.#transition) return
    const begun = this.#transition
    this.#training = begun
    // A loop of an earlier ballot may end after the one of this ballot began.
    void this.#train(begun).finally(() => {
      if (this.#training === begun) this.#training = undefined
    })
  }

  async #train(transition: number): Promise<void> {
    for (;;) {
      const step = (this.held?.version.v ?? 0) + 1
      const blocks = this.#plan.get(step)
      if (blocks === undefined || step > this.#until) return
      await delay(this.#options.stepMs ?? STEP_MS)
      await this.#options.beforeStep?.(step)
      if (transition !== this.#transition || this.held === undefined || this.socket.readyState !== WebSocket.OPEN)
        return
      const samples = blocks.reduce((sum, block) => sum + this.#range(block, 'train').samples, 0)
      const record: StepRecord = {
        v: step,
        generation: this.#ballot.generation,
        modeEpoch: this.#modeEpoch,
        kind: 'ring',
        blocks,
        samples,
        targets: samples,
        lossSum: samples / step,
        correct: 0,
        gradDigest: nameOf(new Uint8Array(this.#sumOf(samples).buffer)),
      }
      this.#apply(record)
      this.send({ type: 'held', ...this.#ballot, record })
      this.#maybeCopy()
      this.#maybeCheckpoint()
    }
  }

  #asked: MessageTo<'checkpoint-at'> | undefined

  #checkpoint(message: MessageTo<'checkpoint-at'>): void {
    this.#asked = message
    this.#maybeCheckpoint()
  }

  #maybeCheckpoint(): void {
    const { held } = this
    if (this.#asked === undefined || held === undefined || this.#asked.v !== held.version.v) return
    const { uploader } = this.#asked
    this.#asked = undefined
    if (uploader === this.id) void this.#uploadInTurn(held.version)
    else
      this.send({ type: 'version-digest', ...this.#ballot, version: held.version, digest: nameOf(this.stateBytes()) })
  }

  #uploading: Promise<unknown> = Promise.resolve()
  /** uploads that began, by number of version, and how many were taken */
  readonly uploads: number[] = []
  accepted = 0

  /** One at a time, as volunteers do. */
  async #uploadInTurn(version: VersionRef): Promise<void> {
    await this.#uploading
    if (this.held?.version.id !== version.id) return
    this.uploads.push(version.v)
    this.#uploading = this.upload().then(
      ({ status }) => {
        this.accepted += Number(status === CREATED)
      },
      () => undefined,
    )
  }

  async upload(bytes = this.#uploadBytes()): Promise<Pick<Response, 'status'>> {
    const { v, id } = this.held?.version ?? this.#genesis()
    if (this.#options.uploadMs !== undefined)
      return this.#uploadSlowly(pathTo(ROUTES.upload, { id: this.terms?.id ?? '', v, versionId: id }), bytes)
    return this.request(pathTo(ROUTES.upload, { id: this.terms?.id ?? '', v, versionId: id }), {
      method: 'PUT',
      headers: { 'content-type': 'application/octet-stream' },
      body: bytes as BodyInit,
    })
  }

  #uploadBytes(): Uint8Array {
    const { forge } = this.#options
    return forge === undefined ? this.stateBytes() : forge(this.stateBytes(), this)
  }

  /** A line that takes some time for these bytes. */
  async #uploadSlowly(path: string, bytes: Uint8Array): Promise<Pick<Response, 'status'>> {
    const pieces = 10
    const length = Math.ceil(bytes.byteLength / pieces)
    const headers = {
      'content-type': 'application/octet-stream',
      'content-length': bytes.byteLength,
      authorization: `Bearer ${this.session}`,
    }
    const asked = request(this.#url + path, { method: 'PUT', headers })
    const answered = new Promise<number>((resolve, reject) => {
      asked.on('response', (response) => {
        response.resume()
        resolve(response.statusCode ?? 0)
      })
      asked.on('error', reject)
    })
    answered.catch(() => undefined) // it may come before the last piece left
    for (let from = 0; from < bytes.byteLength; from += length) {
      asked.write(bytes.subarray(from, from + length))
      await delay((this.#options.uploadMs ?? 0) / pieces)
    }
    asked.end()
    return { status: await answered }
  }

  /** With the session's token. */
  request(path: string, init: RequestInit = {}): Promise<Response> {
    return fetch(this.#url + path, { ...init, headers: { ...init.headers, authorization: `Bearer ${this.session}` } })
  }

  async #compute({ modeEpoch, base, leases }: MessageTo<'grant'>): Promise<void> {
    await delay(STEP_MS)
    const answer = await this.push({ modeEpoch, base, leases }).catch(() => undefined) // killed: the socket closes, too
    if (answer?.verdict === 'received') this.pushes++
    this.send({ type: 'lease-request', modeEpoch })
  }

  async push(
    { modeEpoch, base, leases }: Pick<MessageTo<'grant'>, 'modeEpoch' | 'base' | 'leases'>,
    change: { readonly push?: Partial<PushHeader>; readonly body?: Float32Array } = {},
  ): Promise<{
    readonly status: number
    readonly verdict?: string
    readonly code?: string
    readonly message?: string
  }> {
    await this.request(`${pathTo(ROUTES.version, { id: this.terms?.id ?? '', versionId: base.id })}?part=parameters`)
    const samples = leases.reduce((sum, { block }) => sum + this.#range(block, 'train').samples, 0)
    const push: PushHeader = {
      incarnation: this.id,
      modeEpoch,
      base,
      leaseEpoch: leases[0]?.leaseEpoch ?? 0,
      blocks: leases.length,
      samples,
      targets: samples,
      lossSum: samples / 2,
      correct: 1,
      ...change.push,
    }
    const body = change.body ?? new Float32Array(this.form.layout.total).fill(samples / 1000)
    const response = await this.request(pathTo(ROUTES.pushes, { id: this.terms?.id ?? '' }), {
      method: 'POST',
      headers: { 'content-type': 'application/octet-stream', [PUSH_HEADER]: JSON.stringify(push) },
      body: body as BodyInit,
    })
    return { status: response.status, ...((await response.json()) as object) }
  }

  get form(): VersionForm {
    if (this.#form === undefined) throw new Error('no job was given')
    return this.#form
  }

  stateBytes(): Uint8Array {
    return encodeVersionState({ ...this.form, ...(this.held ?? this.#initial()) })
  }

  #apply(record: StepRecord): void {
    this.held ??= this.#initial()
    const { held } = this
    const gradient = this.#sumOf(record.samples)
    meanGradient(gradient, record.targets, gradient)
    applyUpdate(
      this.form.optimizer,
      held.optimizerState,
      held.parameters,
      gradient,
      held.parameters,
      held.optimizerState,
    )
    held.version = extend(held.version, record)
    held.records.push(record)
    this.#samples.set(held.version.id, record.samples)
  }

  /** version id → samples of the step that made it, which its sum is a function of */
  readonly #samples = new Map<string, number>()

  #sumOf(samples: number): Float32Array<ArrayBuffer> {
    return new Float32Array(this.form.layout.total).fill(samples / 1000)
  }

  /** Of the steps that it made or followed; nothing when one of them is none of those. */
  async #sendSums(versions: readonly VersionRef[]): Promise<void> {
    const sums = versions.map(({ id }) => this.#sumOf(this.#samples.get(id) ?? 0))
    const bytes = Buffer.concat(sums.map(({ buffer }) => new Uint8Array(buffer)))
    await this.request(`/api/jobs/${this.terms?.id}/sums/${versions.at(-1)?.id}`, {
      method: 'PUT',
      headers: { 'content-type': 'application/octet-stream' },
      body: this.#options.sums !== false && versions.every(({ id }) => this.#samples.has(id)) ? bytes : Buffer.alloc(0),
    })
  }

  /** R6: what is acknowledged need not be claimed again. */
  #acknowledge(committed: VersionRef): void {
    if (this.held === undefined) return
    const until = this.held.records.findIndex(({ v }) => v === committed.v)
    if (until < 0 || fold(this.held.base, this.held.records.slice(0, until + 1))?.id !== committed.id) return
    this.held.base = committed
    this.held.records.splice(0, until + 1)
  }

  #initial(): Held {
    const { spec, optimizer } = this.form
    return {
      version: this.#genesis(),
      base: this.#genesis(),
      records: [],
      ...initialVersionState(spec, optimizer, this.terms?.seed ?? 0),
    }
  }

  #genesis(): VersionRef {
    if (this.terms === undefined) throw new Error('no job was given')
    return genesis(this.terms.id, this.terms.modelHash, this.terms.seed, this.terms.initial)
  }

  #range(block: BlockId, split: 'train' | 'validation') {
    if (this.terms === undefined) throw new Error('no job was given')
    const range = blockRanges(this.terms.dataset[split], this.terms.blockSamples).at(blockIndex(block))
    if (range === undefined) throw new Error(`block ${block} is outside the dataset`)
    return range
  }
}
