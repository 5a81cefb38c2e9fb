// A volunteer of a simulated grid: production's volunteer on a virtual clock, in a host whose network, cache and
// executor are the world's. What it applies and takes over is compared with what its version must hold.
import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from 'node:crypto'
import {
  encode,
  extend,
  GridError,
  type JobId,
  type MemberId,
  sameVersion,
  type Signer,
  type StepRecord,
  type ToCoordinator,
  type ToVolunteer,
  type VersionRef,
  type OnWire,
} from '@starling-grid/protocol'
import {
  createVolunteer,
  type RelaySocket,
  type SendRequest,
  type ShardCache,
  type VolunteerHost,
} from '@starling-grid/volunteer'
import type { Asked, StepWitness, Volunteer } from '@starling-grid/volunteer/testing'
import { type CoordinatorProcess, NAME } from './coordinator-process.ts'
import { answersNothing } from './defects.ts'
import { falseUpload, falseWords } from './false-state.ts'
import { CountingExecutor } from './job.ts'
import { RelayWire } from './relays.ts'
import type { VirtualProcess } from './virtual-time.ts'
import type { WatchedRun } from './watched-run.ts'
import { ControlWire, type Tap } from './wires.ts'
import type { World } from './world.ts'

/** ms that a request or its answer takes at most */
const MOST_MS = 60
/** DER of a PKCS #8 Ed25519 key up to its 32 bytes (RFC 8410) */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex')

/** of the connections while a coordinator does not know that it was replaced: how many reach it */
const STALE = 0.3
/** of the requests in a network that shuffles, how many are slow */
const SLOW = 0.2

const signers = new Map<number, Signer>()

/** The key of the volunteer at this seat: the same in every run. */
function signerOf(seat: number): Signer {
  const known = signers.get(seat)
  if (known !== undefined) return known
  const key = createPrivateKey({
    key: Buffer.concat([PKCS8_PREFIX, Buffer.alloc(32, seat + 1)]),
    format: 'der',
    type: 'pkcs8',
  })
  const signer: Signer = {
    publicKey: publicBytes(key),
    sign: async (bytes) => sign(null, bytes, key),
    verify: async (publicKey, bytes, signature) => verify(null, bytes, keyOf(publicKey), signature),
  }
  signers.set(seat, signer)
  return signer
}

function keyOf(publicKey: Uint8Array): KeyObject {
  const x = Buffer.from(publicKey).toString('base64url')
  return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' })
}

function publicBytes(key: KeyObject): Uint8Array<ArrayBuffer> {
  const { x = '' } = createPublicKey(key).export({ format: 'jwk' })
  return new Uint8Array(Buffer.from(x, 'base64url'))
}

/**
 * mute: it answers ballots and nothing else; wrong: it holds another state than it says; unreachable: it opens no link;
 * liar: it comes back with a step that it made up; accomplice: it says another state than it holds, as others do with
 * it
 */
export type Temper = 'honest' | 'mute' | 'wrong' | 'unreachable' | 'liar' | 'accomplice'

export interface Seat {
  readonly seat: number
  /** what the process before it kept */
  readonly cache: Map<string, Uint8Array>
  readonly temper: Temper
}

export class VolunteerProcess {
  readonly seat: number
  readonly temper: Temper
  readonly clock: VirtualProcess
  readonly cache: Map<string, Uint8Array>
  readonly #world: World
  readonly #volunteer: Volunteer
  #wire: ControlWire | undefined
  readonly #relays = new Set<RelayWire>()
  /** it said so on its newest socket */
  #isReady = false
  /** that its newest socket leads to */
  coordinator: CoordinatorProcess | undefined
  /** of its network; undefined before the first WELCOME */
  member: MemberId | undefined
  /** by job */
  readonly #held = new Map<JobId, VersionRef>()
  hasEnded = false
  /** of the blocks that it was told last to compute */
  epoch = 0
  /** ms: its computations end then at the earliest; its requests for files fail until then */
  stuckUntil = 0
  cutOffUntil = 0
  /** ms: its machine is busy with something else until then */
  slowUntil = 0

  constructor(world: World, { seat, cache, temper }: Seat) {
    this.#world = world
    this.seat = seat
    this.temper = temper
    this.cache = cache
    this.clock = world.time.process()
    this.#volunteer = createVolunteer(this.#host(), { name: `seat ${seat}`, onStatus: () => undefined })
  }

  start(): void {
    this.#volunteer.run().then(
      () => this.#ended(),
      (error: unknown) => {
        if (!this.clock.isDead) this.#world.observer.failed(this, error)
        this.#ended()
      },
    )
  }

  get name(): string {
    return `seat ${this.seat}`
  }

  get isHonest(): boolean {
    return this.temper === 'honest' || this.temper === 'unreachable'
  }

  get isAlive(): boolean {
    return !this.clock.isDead && !this.hasEnded
  }

  get isConnected(): boolean {
    return this.#wire?.isOpen === true
  }

  get wire(): ControlWire | undefined {
    return this.#wire
  }

  heldOf(job: JobId): VersionRef | undefined {
    return this.#held.get(job)
  }

  /** It says so itself: a session that begins anew may hold less than the one before. */
  holds(job: JobId, version: VersionRef | undefined): void {
    if (version === undefined) this.#held.delete(job)
    else this.#held.set(job, version)
  }

  loseSocket(): void {
    this.#wire?.break()
  }

  kill(): void {
    this.clock.kill()
    this.loseSocket()
    for (const wire of this.#relays) wire.break()
    if (this.member !== undefined) this.#world.air.leave(this.member)
  }

  leave(): void {
    void this.#volunteer.stop()
  }

  /** The coordinator gets this as if this volunteer had sent it. */
  forge(message: OnWire<ToCoordinator>): void {
    if (this.isConnected && this.#isReady) this.#wire?.forge(encode(message))
  }

  #ended(): void {
    if (this.hasEnded || this.clock.isDead) return
    this.hasEnded = true
    this.clock.kill()
    if (this.member !== undefined) this.#world.air.leave(this.member)
    this.#world.ended(this)
  }

  #host(): VolunteerHost {
    const { clock } = this
    const { scenario } = this.#world
    return {
      client: 'node',
      clock,
      coordinatorUrl: `http://${NAME}`,
      signer: async () => signerOf(this.seat),
      createExecutor: async () => new CountingExecutor({ volunteer: this, world: this.#world }),
      sendRequest: this.#sendRequest,
      dialCoordinator: async () => this.#dial(),
      openPeerNetwork: async (access) => {
        this.member = access.self
        return this.#world.air.join(access.self, clock, {
          linkOpenMs: access.linkOpenMs ?? scenario.timing.linkOpenMs,
          isMute: this.temper === 'unreachable',
        })
      },
      dialRelay: (path, token) => this.#dialRelay(path, token),
      shards: cacheIn(this.cache),
      witness: ({ id }) => this.#witness(this.#world.run(id)),
    }
  }

  async #dial(): Promise<ControlWire['near']> {
    const coordinator = await this.#reach()
    if (this.#world.time.now < this.#world.noNetworkUntil)
      throw new GridError('coordinator-lost', 'there is no network')
    const wire = new ControlWire({
      member: this.clock,
      coordinator: coordinator.clock,
      ...this.#world.lines,
      tap: this.#tap(coordinator),
    })
    this.#wire = wire
    this.#isReady = false
    this.coordinator = coordinator
    coordinator.admit(wire.far)
    return wire.near
  }

  /** @throws GridError 'coordinator-lost' */
  async #dialRelay(path: string, token: string): Promise<RelaySocket> {
    const coordinator = await this.#reach()
    const { lines, scenario } = this.#world
    if (this.temper === 'unreachable' || this.seat === scenario.members.linkless)
      throw new GridError('coordinator-lost', 'this network lets no relayed link through')
    const wire = new RelayWire({ member: this.clock, coordinator: coordinator.clock, ...lines })
    this.#relays.add(wire)
    coordinator.relay(path, token, wire)
    return wire.near
  }

  #tap(coordinator: CoordinatorProcess): Tap {
    const { observer } = this.#world
    /** text → message, of those that are on their way */
    const underway = new Map<string, OnWire<ToVolunteer>>()
    return {
      sent: (text) => {
        const message = JSON.parse(text) as OnWire<ToVolunteer>
        underway.set(text, message)
        return observer.sent(coordinator, this, message)
      },
      heard: (text) => {
        const message = underway.get(text) ?? (JSON.parse(text) as OnWire<ToVolunteer>)
        underway.delete(text)
        return observer.heard(this, message)
      },
      said: (text) => {
        const message = JSON.parse(text) as OnWire<ToCoordinator>
        const leaving = observer.said(this, message)
        this.#isReady ||= message.type === 'ready'
        const lie = this.temper === 'accomplice' && leaving && falseWords(this.#world, leaving)
        if (lie) return encode(lie)
        return leaving === message ? text : leaving && encode(leaving)
      },
    }
  }

  /**
   * The newest coordinator; now and then one that was replaced and does not know it yet.
   * @throws GridError 'coordinator-lost'
   */
  async #reach(): Promise<CoordinatorProcess> {
    const { dice } = this.#world
    await this.clock.sleep(dice.between(1, MOST_MS))
    const { answering } = this.#world
    const coordinator = answering.length > 1 && dice.chance(STALE) ? answering[0] : answering.at(-1)
    if (coordinator === undefined) throw new GridError('coordinator-lost', 'no coordinator answers')
    return coordinator
  }

  #sendRequest: SendRequest = async (url, asked) => {
    const { dice, scenario, counts, time } = this.#world
    const path = url.slice(`http://${NAME}`.length)
    const newest = await this.#reach()
    const coordinator = this.coordinator?.isOpen === true ? this.coordinator : newest // at the address of its socket
    const isUpload = asked.method === 'PUT'
    await this.#travels(isUpload)
    asked.signal.throwIfAborted()
    if (
      answersNothing(this, asked.method ?? 'GET', path, scenario) ||
      time.now < Math.max(this.cutOffUntil, this.#world.noNetworkUntil)
    )
      throw new GridError('coordinator-lost', 'the request was lost')
    const lie = isUpload && this.temper === 'accomplice' ? falseUpload(this.#world, path) : undefined
    const arriving = lie ? { ...asked, body: lie } : asked
    if (dice.chance(scenario.members.repeated)) this.#arrivesAgain(coordinator, path, arriving)
    this.#world.observer.asks(asked.method ?? 'GET', path)
    const answer = await coordinator.request(path, arriving)
    this.#world.observer.answered(this, asked.method ?? 'GET', path, answer)
    await this.clock.sleep(dice.between(1, isUpload ? MOST_MS : scenario.transferMs))
    asked.signal.throwIfAborted()
    if (!dice.chance(scenario.lostAnswers)) return answer
    counts.lostAnswers++
    throw new GridError('coordinator-lost', 'the answer was lost')
  }

  /** Until a request arrives: a state takes long, and some lines are slow. */
  async #travels(isUpload: boolean): Promise<void> {
    const { dice, scenario } = this.#world
    const { slowLineMs } = scenario.members
    if (isUpload) await this.clock.sleep(dice.between(0, scenario.uploadMs))
    if (slowLineMs !== undefined && dice.chance(SLOW)) await this.clock.sleep(dice.between(0, slowLineMs))
  }

  /** A line between them sends it twice; no one waits for the second answer. */
  #arrivesAgain(coordinator: CoordinatorProcess, path: string, asked: Asked): void {
    this.#world.counts.repeatedRequests++
    coordinator.clock.timer(this.#world.dice.between(1, MOST_MS), () => {
      coordinator.request(path, asked).catch(() => undefined)
    })
  }

  #witness(run: WatchedRun): StepWitness {
    const { violations, observer } = this.#world
    const { ledger, genesis } = run
    const { id } = run.job.stored
    const applied = (record: StepRecord, sum: Float32Array): void => {
      if (!this.isAlive) return
      const parent = record.v === 1 ? genesis : (this.#held.get(id) ?? genesis) // version 0 comes from the seed
      if (record.v !== parent.v + 1)
        return violations.report('I6', `${this.name} applies version ${record.v} and holds ${parent.v}`)
      ledger.checkSum(this.name, record, sum)
      const version = extend(parent, record)
      this.#held.set(id, version)
      ledger.record(parent, record, version)
      observer.applied(this, run, { record, version })
    }
    return {
      applied,
      adopted: (version, state) => {
        if (!this.isAlive) return
        if (ledger.counts(version) === undefined)
          return violations.report('I6', `${this.name} takes over version ${version.v}, which no member made`)
        ledger.checkState(this.name, state(), version)
        observer.adopted(this, run, version)
        const held = this.#held.get(id)
        if (held === undefined || !sameVersion(held, version)) this.#held.set(id, version)
      },
      began: (version, bytes) => {
        if (this.isAlive) ledger.checkBase(this.name, version, bytes)
      },
    }
  }
}

/** What a process keeps for the next one at its seat. */
export function cacheIn(kept: Map<string, Uint8Array>): ShardCache {
  return { get: async (name) => kept.get(name), put: async (name, bytes) => void kept.set(name, bytes.slice()) }
}
