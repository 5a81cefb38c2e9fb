// A volunteer of a simulated grid: production's volunteer on a virtual clock, in a host whose network, cache and
// executor are the world's. What it applies and takes over is compared with what its version must hold.
import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from 'node:crypto'
import { extend, GridError, type MemberId, sameVersion, type Signer, type VersionRef } from '@starling-grid/protocol'
import {
  createVolunteer,
  type SendRequest,
  type ShardCache,
  type StepWitness,
  type Volunteer,
  type VolunteerHost,
} from '@starling-grid/volunteer'
import { type CoordinatorProcess, NAME } from './coordinator-process.ts'
import { CountingExecutor, genesisOf } from './job.ts'
import type { VirtualProcess } from './virtual-time.ts'
import { ControlWire } from './wires.ts'
import type { World } from './world.ts'

/** ms that a request or its answer takes at most */
const MOST_MS = 60
/** DER of a PKCS #8 Ed25519 key up to its 32 bytes (RFC 8410) */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex')

/** DER of SubjectPublicKeyInfo up to the key's 32 bytes (RFC 8410) */
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex')

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
  return createPublicKey({ key: Buffer.concat([SPKI_PREFIX, publicKey]), format: 'der', type: 'spki' })
}

function publicBytes(key: KeyObject): Uint8Array<ArrayBuffer> {
  const { x = '' } = createPublicKey(key).export({ format: 'jwk' })
  return new Uint8Array(Buffer.from(x, 'base64url'))
}

export class VolunteerProcess {
  readonly seat: number
  readonly clock: VirtualProcess
  readonly #world: World
  readonly #volunteer: Volunteer
  #wire: ControlWire | undefined
  /** of its network; undefined before the first WELCOME */
  member: MemberId | undefined
  held: VersionRef | undefined
  hasEnded = false

  constructor(world: World, seat: number) {
    this.#world = world
    this.seat = seat
    this.clock = world.time.process()
    this.#volunteer = createVolunteer(this.#host(), { name: `seat ${seat}`, once: true, onStatus: () => undefined })
  }

  start(): void {
    this.#volunteer.run().then(
      () => this.#ended(),
      (error: unknown) => {
        if (!this.clock.isDead) this.#world.violations.report('refusal', `${this.name} ends: ${String(error)}`)
        this.#ended()
      },
    )
  }

  get name(): string {
    return `seat ${this.seat}`
  }

  get isAlive(): boolean {
    return !this.clock.isDead && !this.hasEnded
  }

  get isConnected(): boolean {
    return this.#wire?.isOpen === true
  }

  loseSocket(): void {
    this.#wire?.break()
  }

  kill(): void {
    this.clock.kill()
    this.loseSocket()
    if (this.member !== undefined) this.#world.air.leave(this.member)
  }

  leave(): void {
    void this.#volunteer.stop()
  }

  #ended(): void {
    this.hasEnded = true
    this.clock.kill()
    if (this.member !== undefined) this.#world.air.leave(this.member)
  }

  #host(): VolunteerHost {
    const { clock } = this
    const { dice, scenario } = this.#world
    return {
      client: 'node',
      clock,
      coordinatorUrl: `http://${NAME}`,
      signer: async () => signerOf(this.seat),
      createExecutor: async () => new CountingExecutor(clock, dice, scenario.computeMs),
      sendRequest: this.#sendRequest,
      dialCoordinator: async () => this.#dial(),
      openPeerNetwork: async (access) => {
        this.member = access.self
        return this.#world.air.join(access.self, clock, access.linkOpenMs ?? scenario.timing.linkOpenMs)
      },
      dialRelay: async () => {
        throw new GridError('coordinator-lost', 'nothing is relayed here')
      },
      shards: memoryCache(),
      witness: () => this.#witness(),
    }
  }

  async #dial(): Promise<ControlWire['near']> {
    const coordinator = await this.#reach()
    const wire = new ControlWire(this.clock, coordinator.clock, this.#world.dice)
    this.#wire = wire
    coordinator.admit(wire.far)
    return wire.near
  }

  /** @throws GridError 'coordinator-lost' */
  async #reach(): Promise<CoordinatorProcess> {
    await this.clock.sleep(this.#world.dice.between(1, MOST_MS))
    const { coordinator } = this.#world
    if (coordinator?.isOpen !== true) throw new GridError('coordinator-lost', 'no coordinator answers')
    return coordinator
  }

  #sendRequest: SendRequest = async (url, asked) => {
    const { dice, scenario } = this.#world
    const coordinator = await this.#reach()
    asked.signal.throwIfAborted()
    const answer = await coordinator.request(url.slice(`http://${NAME}`.length), asked)
    await this.clock.sleep(dice.between(1, MOST_MS))
    asked.signal.throwIfAborted()
    if (dice.chance(scenario.lostAnswers)) throw new GridError('coordinator-lost', 'the answer was lost')
    return answer
  }

  #witness(): StepWitness {
    const { ledger, violations } = this.#world
    return {
      applied: (record, sum) => {
        if (!this.isAlive) return
        const first = genesisOf(this.#world.job)
        const parent = record.v === 1 ? first : (this.held ?? first) // version 0 comes from the seed: no state is taken over
        if (record.v !== parent.v + 1)
          return violations.report('I6', `${this.name} applies version ${record.v} and holds ${parent.v}`)
        ledger.checkSum(this.name, record, sum)
        this.held = extend(parent, record)
        ledger.record(parent, record, this.held)
        this.#world.agree(this, record, this.held)
      },
      adopted: (version, state) => {
        if (!this.isAlive) return
        if (ledger.counts(version) === undefined)
          return violations.report('I6', `${this.name} takes over version ${version.v}, which no member made`)
        ledger.checkState(this.name, state(), version)
        if (this.held === undefined || !sameVersion(this.held, version)) this.held = version
      },
    }
  }
}

/** Forgets all when its process ends. */
function memoryCache(): ShardCache {
  const kept = new Map<string, Uint8Array>()
  return { get: async (name) => kept.get(name), put: async (name, bytes) => void kept.set(name, bytes.slice()) }
}
