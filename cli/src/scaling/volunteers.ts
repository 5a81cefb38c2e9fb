// The volunteers of the model: the production state machine of each member (member/member.ts). Formulas replace WebRTC
// links and GPUs.
import { CONNECT_MS, MOST_SERVED, opensMoreLinks } from '@starling-grid/coordinator/run'
import {
  type BlockId,
  type MemberId,
  memberId,
  type MessageTo,
  type Push,
  sha256Name,
  type ToCoordinator,
  type ToVolunteer,
  type VersionRef,
} from '@starling-grid/protocol'
import {
  createMember,
  type MemberCore,
  type MemberEffect,
  type MemberInput,
  react,
} from '@starling-grid/volunteer/member'
import { HOPE_PART, ROUND_PART, takeBlocks } from '@starling-grid/volunteer/testing'
import type { EventClock } from './clock.ts'
import type { ModelCoordinator } from './coordinator.ts'
import type { ShardWork } from './data.ts'
import { type Rings, wayOf } from './rings.ts'
import { pullBytesOf, pushBytesOf, type Setting } from './setting.ts'

/** ms to load the page, compile kernels and measure speed */
const PREPARE_MS = 4000
/** ms to open the links of a ring: ICE, DTLS and SCTP */
const OPEN_LINK_MS = 800
/** ms to the next try when the parameter server has nothing or refuses */
const HEARTBEAT_MS = 1000
/** ms until the coordinator knows that a socket is closed */
const CLOSE_MS = 50
/** Of the hashes of a version, with the headers of the request and its answer (G3). */
const HASHES_BYTES = 500
/** As in volunteer/src/recovery/state-fetch.ts: ms without a chunk of a version before the coordinator is asked. */
const STALL_MS = 5000
/** ms until one that is due looks again whether it has made an inner step. */
const AGAIN_MS = 200
/** As in volunteer/src/volunteer.ts: ms in which one that leaves sends what its round has learned. */
const LEAVE_MS = 4000

export interface ScaleModel {
  readonly clock: EventClock
  readonly setting: Setting
  readonly coordinator: ModelCoordinator
  readonly rings: Rings
  readonly volunteers: ReadonlyMap<MemberId, ModelVolunteer>
  /** a volunteer begins to compute */
  onWork(): void
  onGone(volunteer: ModelVolunteer): void
  /** a number below 1, the same every time for one seed */
  random(): number
}

interface ModelRound {
  readonly grant: MessageTo<'grant'>
  /** virtual ms of the grant */
  readonly from: number
  /** blocks that are computed one after the other, and when, virtual ms */
  readonly parts: { readonly from: number; readonly to: number; readonly blocks: number }[]
  isSending: boolean
}

/** The version that a round began from, or is to begin from. */
interface ModelBase {
  readonly v: number
  isHere: boolean
  /** of others that fetch it from here */
  readonly waiting: { readonly here: () => void; readonly lost: () => void }[]
}

export class ModelVolunteer {
  readonly id: MemberId
  readonly core: MemberCore
  readonly samplesPerSecond: number
  alive = true
  bytesUp = 0
  bytesDown = 0
  #leaving = false
  /** of replica groups: under way, until its push is through */
  #round: ModelRound | undefined
  #base: ModelBase | undefined
  /** shards that are on their way, and what waits for them */
  readonly #coming = new Map<number, (() => void)[]>()
  /** members that a link is open to */
  readonly #linked = new Set<MemberId>()
  readonly #all: ScaleModel
  /** raised by a halt: what was under way for the old ring ends */
  #turn = 0

  constructor(all: ScaleModel, number: number, samplesPerSecond: number) {
    this.#all = all
    this.id = memberId(`v${number}`)
    this.core = createMember(this.id, all.coordinator.state.config.genesis)
    this.samplesPerSecond = samplesPerSecond
    all.clock.after(PREPARE_MS * (0.5 + all.random()), () => this.#join())
  }

  #join(): void {
    if (!this.alive) return
    const adapter = { name: 'model', vendor: 'model', software: false, executor: 'webgpu' } as const
    this.#all.coordinator.feed({
      type: 'member-joined',
      member: { id: this.id, name: this.id, client: 'tab', adapter },
      samplesPerSecond: this.samplesPerSecond,
    })
    this.#heartbeat()
  }

  #heartbeat(): void {
    this.#all.clock.after(HEARTBEAT_MS, () => {
      if (!this.alive) return
      const { samplesPerSecond } = this
      const linkMs = this.core.ring === undefined ? {} : { linkMs: this.#all.setting.links.latencyMs }
      const message = {
        type: 'heartbeat',
        samplesPerSecond,
        activity: 'computing',
        bytesSent: 1e9,
        bytesReceived: 1e9,
        ...linkMs,
      }
      this.#all.coordinator.receive({ type: 'speed', member: this.id, samplesPerSecond, ...linkMs }, message)
      this.#heartbeat()
    })
  }

  moved(up: number, down: number): void {
    this.bytesUp += up
    this.bytesDown += down
  }

  /** Closes its tab, with a word or without. */
  go(graceful: boolean): void {
    if (!this.alive || this.#leaving) return
    if (!graceful) return this.gone('its socket closed')
    this.#leaving = true
    this.#all.clock.after(LEAVE_MS, () => this.#sayFarewell())
    if (this.#round === undefined) return this.#sayFarewell()
    if (!this.#round.isSending) this.#cut(this.#round)
  }

  /** What whole inner steps have learned is pushed. */
  #cut(round: ModelRound): void {
    const leases = round.grant.leases.slice(0, this.#learned(round))
    this.#turn++
    if (leases.length > 0) return this.#push({ ...round.grant, leases }, round.from)
    if (this.#leaving) this.#sayFarewell()
  }

  #sayFarewell(): void {
    if (this.alive) this.#all.coordinator.feed({ type: 'member-leaving', member: this.id })
  }

  gone(reason: string): void {
    if (!this.alive) return
    this.alive = false
    this.#all.onGone(this)
    this.#all.rings.lost(this.id)
    for (const { lost } of this.#base?.waiting.splice(0) ?? []) lost()
    this.#all.clock.after(CLOSE_MS, () =>
      this.#all.coordinator.feed({ type: 'member-lost', member: this.id, reason, expected: this.#leaving }),
    )
  }

  hear(message: ToVolunteer): void {
    if (!this.alive) return
    if (message.type === 'form') this.#all.rings.forms()
    switch (message.type) {
      case 'freeze':
      case 'form':
      case 'start':
      case 'plan':
      case 'last-step':
      case 'ack':
      case 'checkpoint-at':
      case 'copy-at':
      case 'meet':
      case 'prove':
      case 'prefetch':
      case 'follow':
      case 'off-ring':
      case 'off-ring-take':
      case 'upload-request':
      case 'async':
        return this.take({ type: 'order', order: message })
      case 'grant':
        return this.#granted(message)
      default:
    }
  }

  take(input: MemberInput): void {
    if (this.alive) for (const effect of react(this.core, input)) this.#carryOut(effect)
  }

  // oxlint-disable-next-line max-lines-per-function -- a flat switch over effects
  #carryOut(effect: MemberEffect): void {
    const { setting, rings } = this.#all
    switch (effect.type) {
      case 'send':
        return this.#send(effect.message)
      case 'halt':
        this.#turn++
        return
      case 'open-links':
        return this.#later(this.#openMs(), () => this.take({ type: 'links-open', generation: effect.generation }))
      case 'fetch-state':
        return this.#fetch(effect.sources.length === 0, setting.stateBytes, {
          type: 'state-fetched',
          generation: effect.generation,
          version: effect.target,
        })
      case 'fetch-reduced':
        return this.#fetch(false, setting.gradientBytes, {
          type: 'reduced-fetched',
          generation: effect.generation,
          version: effect.target,
        })
      case 'fetch-given':
        return this.#fetch(true, setting.gradientBytes, {
          type: 'given-fetched',
          generation: effect.generation,
          id: effect.id,
        })
      case 'confirm':
        return this.#send({
          type: 'confirm',
          fence: effect.fence,
          generation: effect.generation,
          version: effect.version,
          digest: digestAt(effect.version),
        })
      case 'report-digest':
        return this.#send({
          type: 'version-digest',
          fence: effect.fence,
          generation: effect.generation,
          version: effect.version,
          digest: digestAt(effect.version),
        })
      case 'copy': {
        const { fence, generation, version } = effect
        return this.#send({ type: 'copied', fence, generation, version, digest: digestAt(version) })
      }
      case 'prove': {
        const { fence, generation, salt, peers } = effect.order
        const digest = this.core.version === undefined ? null : digestAt(this.core.version)
        return this.#later(this.#openMs(), () =>
          this.#send({ type: 'proof', fence, generation, salt, digest, linked: peers }),
        )
      }
      case 'compute':
        return this.#compute(effect)
      case 'contribute':
        return rings.contribute(this, effect)
      case 'upload':
        return this.#upload(effect.version)
      default:
    }
  }

  #openMs(): number {
    const { ring } = this.core
    const isMany = ring !== undefined && opensMoreLinks(wayOf(ring), ring.members.length)
    return OPEN_LINK_MS + (isMany ? CONNECT_MS : 0)
  }

  /** In one piece: no member gets slower within a step here, so no blocks change members. */
  #compute({ generation, step, blocks }: Extract<MemberEffect, { type: 'compute' }>): void {
    this.#all.onWork()
    const next = () => takeBlocks(this.core, { generation, step, most: Number.POSITIVE_INFINITY, blockMs: 0 })
    next()
    this.#later(this.#computeMs(blocks.length), () => {
      if (next() === 'complete')
        this.take({ type: 'computed', generation, step, manifest: this.#manifest(blocks), finite: true })
    })
  }

  /** Over the connection of a member, or of the coordinator for those that no member can serve. */
  #fetch(fromCoordinator: boolean, bytes: number, whole: MemberInput): void {
    const { links } = this.#all.setting
    const ms = (1000 * bytes) / Math.min(links.up, links.down) + 2 * links.latencyMs
    this.moved(0, bytes)
    if (fromCoordinator && bytes > 0)
      return this.#all.coordinator.transfer(bytes, () => this.#later(ms, () => this.take(whole)))
    this.#later(ms, () => this.take(whole))
  }

  #upload(version: VersionRef): void {
    const { setting, coordinator } = this.#all
    this.moved(setting.stateBytes, 0)
    this.#later((1000 * setting.stateBytes) / setting.links.up, () =>
      coordinator.transfer(setting.stateBytes, () =>
        coordinator.feed({
          type: 'uploaded',
          member: this.id,
          version,
          blob: digestAt(version),
          bytes: setting.stateBytes,
        }),
      ),
    )
  }

  /** Pull, compute, push, ask again. */
  #granted(grant: MessageTo<'grant'>): void {
    if (this.#leaving) return
    const { setting, clock, coordinator } = this.#all
    this.#all.onWork()
    const round: ModelRound = { grant, from: clock.now, parts: [], isSending: false }
    if (setting.async.groups !== undefined) this.#round = round
    clock.after(ROUND_PART * grant.deadlineMs, () => this.#end(round))
    clock.after(HOPE_PART * grant.deadlineMs, () => this.#giveUp(round))
    const work = coordinator.data.granted(grant.leases)
    this.#pull(grant, () => this.#work(round, work))
  }

  /** Shard by shard: the next ones come while one is computed (volunteer/src/data/batch.ts). */
  #work(round: ModelRound, [next, ...others]: readonly ShardWork[]): void {
    const { clock, setting } = this.#all
    if (next === undefined)
      return this.#later((round.parts.at(-1)?.to ?? clock.now) - clock.now, () => this.#push(round.grant, round.from))
    this.#fetchShard(next, () => {
      const from = Math.max(round.parts.at(-1)?.to ?? 0, clock.now)
      const ms = this.#computeMs(next.blocks) - (round.parts.length === 0 ? 0 : setting.stepMs)
      round.parts.push({ from, to: from + ms, blocks: next.blocks })
      this.#work(round, others)
    })
  }

  /** Once: a round that begins while a shard of the one before is on its way waits for the same one. */
  #fetchShard({ shard }: ShardWork, then: () => void): void {
    const { setting, coordinator, clock } = this.#all
    const { shardBytes } = setting
    if (shardBytes === undefined || coordinator.data.has(this.id, shard)) return this.#here(shard, then)
    const turn = this.#turn
    const whole = (): void => {
      if (this.alive && turn === this.#turn) then()
    }
    const waiting = this.#coming.get(shard)
    if (waiting !== undefined) return void waiting.push(whole)
    this.#coming.set(shard, [whole])
    const { down, latencyMs } = setting.links
    coordinator.transferData(shardBytes, () =>
      clock.after((1000 * shardBytes) / down + latencyMs, () => {
        this.moved(0, shardBytes)
        this.#here(shard, () => {
          for (const act of this.#coming.get(shard) ?? []) act()
          this.#coming.delete(shard)
        })
      }),
    )
  }

  #here(shard: number, then: () => void): void {
    this.#all.coordinator.data.fetched(this.id, shard)
    then()
  }

  /** As RoundCut: it is due, and is pushed as soon as one inner step is made. */
  #end(round: ModelRound): void {
    if (this.#round !== round || round.isSending || !this.alive) return
    if (this.#learned(round) > 0) this.#cut(round)
    else this.#later(AGAIN_MS, () => this.#end(round))
  }

  /** As RoundCut: its data is not here. */
  #giveUp(round: ModelRound): void {
    if (this.#round !== round || round.isSending || !this.alive || this.#learned(round) > 0) return
    this.#turn++
    this.#round = undefined
    this.#send({ type: 'lease-request', modeEpoch: round.grant.modeEpoch })
  }

  /** Blocks of whole inner steps. */
  #learned({ parts }: ModelRound): number {
    const { setting, clock } = this.#all
    const part = (from: number, to: number): number => Math.min(1, Math.max(0, (clock.now - from) / (to - from)))
    const blocks = parts.reduce((sum, { from, to, blocks: all }) => sum + all * part(from, to), 0)
    return Math.floor(blocks / setting.batchBlocks) * setting.batchBlocks
  }

  /** G3: from members that have the version or are about to, else from the coordinator. */
  #pull({ base: { v }, sources = [] }: MessageTo<'grant'>, then: () => void): void {
    const base: ModelBase = { v, isHere: false, waiting: [] }
    this.#base = base
    const done = (): void => {
      this.moved(0, pullBytesOf(this.#all.setting))
      base.isHere = true
      for (const { here } of base.waiting.splice(0)) here()
      then()
    }
    const { volunteers } = this.#all
    const present = sources.flatMap((id) => volunteers.get(id) ?? [])
    if (present.length === 0) return this.#pullFromCoordinator(done)
    this.#all.coordinator.transfer(HASHES_BYTES, () => this.#pullFrom(present, v, done))
  }

  #pullFromCoordinator(done: () => void): void {
    const { setting, coordinator } = this.#all
    const { links } = setting
    const bytes = pullBytesOf(setting)
    coordinator.transfer(bytes, () => this.#later((1000 * bytes) / links.down + links.latencyMs, done))
  }

  /** Each source shares its line among all that it serves. One that goes meanwhile is replaced by the coordinator. */
  #pullFrom(sources: readonly ModelVolunteer[], v: number, done: () => void): void {
    const { links } = this.#all.setting
    const bytes = pullBytesOf(this.#all.setting)
    const rate = Math.min(links.down, (links.up * sources.length) / MOST_SERVED)
    const openMs = sources.every(({ id }) => this.#linked.has(id)) ? 0 : OPEN_LINK_MS
    for (const { id } of sources) this.#linked.add(id)
    let [isUnderWay, hopes] = [false, sources.length]
    const giveUp = (): void => {
      if (isUnderWay) return
      isUnderWay = true
      this.#pullFromCoordinator(done)
    }
    const lost = (): void => {
      if (--hopes === 0) giveUp()
    }
    const here = (): void => {
      if (isUnderWay) return
      isUnderWay = true
      this.#later((1000 * bytes) / rate + 2 * links.latencyMs, () => {
        const left = sources.filter(({ alive }) => alive)
        if (left.length === 0) return this.#pullFromCoordinator(done)
        for (const source of left) source.moved(bytes / left.length, 0)
        done()
      })
    }
    this.#later(openMs, () => {
      for (const source of sources) source.whenHere(v, { here, lost })
    })
    this.#later(openMs + STALL_MS, giveUp)
  }

  /** `lost`: it has another, or went. */
  whenHere(v: number, then: ModelBase['waiting'][number]): void {
    if (this.#base?.v !== v || !this.alive) then.lost()
    else if (this.#base.isHere) then.here()
    else this.#base.waiting.push(then)
  }

  #push({ base, leases, modeEpoch }: MessageTo<'grant'>, from: number): void {
    const { setting, coordinator } = this.#all
    const { links } = setting
    const pushed = pushBytesOf(setting)
    const samples = leases.length * setting.blockSamples
    const turn = this.#turn
    if (this.#round !== undefined) this.#round.isSending = true
    const push: Push = {
      incarnation: this.id,
      modeEpoch,
      base,
      leases,
      samples,
      targets: samples,
      lossSum: 0,
      correct: 0,
    }
    this.#later((1000 * pushed) / links.up, () =>
      coordinator.transfer(pushed, () => {
        if (!this.alive || turn !== this.#turn) return
        this.moved(pushed, 0)
        this.#round = undefined
        coordinator.receivePush(push, from)
        if (this.#leaving) return this.#sayFarewell()
        this.#later(coordinator.serverQueueMs + 2 * links.latencyMs, () =>
          this.#send({ type: 'lease-request', modeEpoch }),
        )
      }),
    )
  }

  #send(message: ToCoordinator): void {
    const { clock, coordinator, setting } = this.#all
    clock.after(setting.links.latencyMs, () => {
      if (this.alive) coordinator.receive({ type: 'message', member: this.id, message: message as never }, message)
    })
  }

  #later(ms: number, act: () => void): void {
    const turn = this.#turn
    this.#all.clock.after(ms, () => {
      if (this.alive && turn === this.#turn) act()
    })
  }

  #computeMs(blocks: number): number {
    const { blockSamples, stepMs } = this.#all.setting
    return blocks === 0 ? 0 : stepMs + (1000 * blocks * blockSamples) / this.samplesPerSecond
  }

  #manifest(blocks: readonly BlockId[]) {
    const samples = blocks.length * this.#all.setting.blockSamples
    return { blocks, samples, targets: samples, lossSum: 0, correct: 0 }
  }
}

/** Replicas never differ here. */
function digestAt({ id }: VersionRef) {
  return sha256Name(id)
}
