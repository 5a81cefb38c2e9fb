// Carries out which coordinator has which job (who-owns.ts): beats, takes jobs whose owner is gone, lets go those that
// another took, and gives all away when this process ends. Knows what the others say of themselves.
import {
  type CancelTimer,
  type Clock,
  describeError,
  GridError,
  isLoopbackUrl,
  type JobId,
  SerialQueue,
} from '@starling-grid/protocol'
import type { CoordinatorId, OwnerBook, Register } from '../journal/owner-book.ts'
import { type CardParts, cardText, type CoordinatorCard, readCard } from './card.ts'
import { inheritance, orphans, type Owned, type Passing, type CoordinatorPeer, roomElsewhere } from './who-owns.ts'

/** ms between beats: each is one short transaction */
const BEAT_MS = 500
/**
 * ms of silence after which others take a coordinator's jobs: a busy disk or a busy processor costs some beats. One
 * that lives all the same loses no step by it, since its appends are refused (R2).
 */
export const LEASE_MS = 3000

/** ms in which a coordinator opens a job that it was given, and says so */
const OPENING_MS = 5000
const MORE_ROOM = 'that coordinator has more room'

/** The jobs that this coordinator runs. */
export interface OwnJobs {
  /** it is open here, or was found damaged */
  has(job: JobId): boolean
  list(): Iterable<JobId>
  /** Takes it over. @throws GridError 'disk-failed' */
  open(job: JobId): Promise<void>
  /** Another coordinator has it: nothing more is written. */
  drop(job: JobId): Promise<void>
  /** Ends its decisions, and waits until they are durable. */
  close(job: JobId): Promise<void>
  /** It is open, and no volunteer works for it. */
  isIdle(job: JobId): boolean
}

export interface OwnersParts {
  readonly clock: Clock
  readonly book: OwnerBook
  readonly self: CoordinatorId
  readonly card: () => CardParts
  readonly jobs: OwnJobs
  readonly onTrouble: (text: string, job?: JobId) => void
  /** a job came here, or went; for the log */
  readonly onPassed: (job: JobId, text: string) => void
  /** addresses of the others that live, when they change */
  readonly onOthers: (urls: readonly string[]) => void
  /** this coordinator was silent for so long that another one may have its jobs, and there are others */
  readonly onCutOff: () => void
}

/** Another coordinator that lives. */
export interface Other {
  readonly id: CoordinatorId
  readonly card: CoordinatorCard
}

/** `soon`: no coordinator has it at the moment, or this one is about to. */
export type Whereabouts = 'here' | 'soon' | 'unknown' | OwnerAt

export interface OwnerAt {
  readonly url: string
  /** it ends, and gives the job away */
  readonly ends: boolean
}

export class Owners {
  readonly #parts: OwnersParts
  readonly #work = new SerialQueue()
  /** One that overtook the leaving would have the others believe that this coordinator lives. */
  readonly #beats = new SerialQueue()
  #register: Register = { coordinators: [], owners: new Map() }
  /** of others that live */
  #others: readonly Other[] = []
  readonly #given = new Map<JobId, { readonly to: CoordinatorId; readonly at: number }>()
  /** ms: when the store last heard of this coordinator */
  #heardAt = 0
  #isCutOff = false
  #beating: Promise<void> | undefined
  #stopBeating: CancelTimer = () => undefined
  #trouble: string | undefined
  #stage: 'joining' | 'joined' | 'leaving' = 'joining'

  constructor(parts: OwnersParts) {
    this.#parts = parts
  }

  /**
   * Joins the others, and takes what is its own and what no coordinator has. `check`: whether it may join.
   * @throws GridError 'disk-failed'; 'usage' when the others cannot reach its address, or it cannot reach theirs; what
   * `check` throws
   */
  async start(check: (others: readonly Other[]) => Promise<void>): Promise<void> {
    await this.#hear()
    try {
      this.#requireReachable()
      await check(this.#others)
    } catch (error) {
      await this.#parts.book.leave(this.self)
      throw error
    }
    this.#stage = 'joined'
    this.#stopBeating = this.#parts.clock.every(BEAT_MS, () => this.#beat())
    await this.#work.run(() => this.#follow())
  }

  get self(): CoordinatorId {
    return this.#parts.self
  }

  get others(): readonly Other[] {
    return this.#others
  }

  /** The store has not heard of this coordinator for so long that its jobs may be others'. */
  get isCutOff(): boolean {
    return this.#others.length > 0 && this.#parts.clock.now() - this.#heardAt > LEASE_MS
  }

  whereIs(job: JobId): Whereabouts {
    if (this.#stage !== 'leaving' && this.#parts.jobs.has(job)) return 'here'
    if (!this.#register.owners.has(job)) return 'unknown'
    const owner = this.#register.owners.get(job)
    const other = this.#others.find(({ id }) => id === owner)
    return other === undefined ? 'soon' : { url: other.card.url, ends: !other.card.takesJobs }
  }

  /** All jobs of others, and which of them has each. */
  elsewhere(): readonly { readonly job: JobId; readonly url: string }[] {
    return [...this.#register.owners].flatMap(([job, owner]) => {
      const other = this.#others.find(({ id }) => id === owner)
      return other === undefined ? [] : [{ job, url: other.card.url }]
    })
  }

  /** A job of this coordinator without volunteers goes to one that has more room. True: it went. */
  async makeRoom(job: JobId): Promise<boolean> {
    const to = roomElsewhere(this.#owned)
    if (to === undefined) return false
    return this.#work.run(() => this.#give({ job, from: this.self, to, reason: MORE_ROOM }))
  }

  /** What others read from now on: a job began or ended. */
  async refresh(): Promise<void> {
    if (this.#stage !== 'leaving') await this.#hear().catch(() => undefined)
  }

  /** This process ends: its jobs go to those that stay. Their runs have ended. @throws GridError 'disk-failed' */
  async leave(): Promise<void> {
    const hasJoined = this.#stage === 'joined'
    this.#stage = 'leaving'
    this.#stopBeating()
    await this.#beating
    if (!hasJoined) return
    await this.#work.run(async () => {
      await this.#hear()
      for (const { job, from, to } of inheritance(this.#owned))
        if (await this.#parts.book.pass(job, from, to)) this.#noteOwner(job, to)
      await this.#parts.book.leave(this.self)
    })
  }

  /** Nothing is given away: another process goes on in this one's name. */
  stop(): void {
    this.#stage = 'leaving'
    this.#stopBeating()
  }

  #beat(): void {
    if (this.isCutOff && !this.#isCutOff) {
      this.#isCutOff = true
      this.#parts.onCutOff()
    }
    this.#beating ??= this.#hear()
      .then(() => void this.#work.run(() => this.#follow()))
      .catch((error: unknown) => this.#tellTrouble(error))
      .finally(() => {
        this.#beating = undefined
      })
  }

  #tellTrouble(error: unknown): void {
    const text = describeError(error)
    if (this.#trouble !== text) this.#parts.onTrouble(`the other coordinators are not heard: ${text}`)
    this.#trouble = text
  }

  #hear(): Promise<void> {
    return this.#beats.run(() => this.#beatAndRead())
  }

  async #beatAndRead(): Promise<void> {
    const { book, clock } = this.#parts
    const register = await book.beat(this.self, cardText(this.#card))
    this.#register = register
    this.#heardAt = clock.now()
    this.#isCutOff = false
    this.#trouble = undefined
    const before = this.#others.map(({ card: { url } }) => url).join(' ')
    this.#others = register.coordinators.flatMap(({ id, card: text, silentMs }) => {
      const read = id === this.self || silentMs > LEASE_MS ? undefined : readCard(text)
      return read === undefined ? [] : [{ id, card: read }]
    })
    const urls = this.#others.map(({ card: { url } }) => url)
    if (urls.join(' ') !== before) this.#parts.onOthers(urls)
  }

  get #card(): CardParts {
    const card = this.#parts.card()
    return { ...card, takesJobs: card.takesJobs && this.#stage === 'joined' }
  }

  get #owned(): Owned {
    const own = this.#card
    const self: CoordinatorPeer = { id: this.self, isLive: true, takesJobs: own.takesJobs, openJobs: own.jobs.length }
    const others = this.#others.map(({ id, card: { takesJobs, jobs } }) => ({
      id,
      isLive: true,
      takesJobs,
      openJobs: jobs.length + this.#underWayTo(id, jobs),
    }))
    return { self: this.self, peers: [self, ...others], owners: this.#register.owners }
  }

  async #follow(): Promise<void> {
    const { jobs } = this.#parts
    if (this.#stage !== 'joined') return
    for (const job of [...jobs.list()]) await this.#dropUnlessOwn(job)
    for (const [job, owner] of this.#register.owners) if (owner === this.self && !jobs.has(job)) await this.#open(job)
    for (const passing of orphans(this.#owned)) if (passing.to === this.self) await this.#take(passing)
    await this.#giveOne()
  }

  /** A job at a time, of those that no volunteer works for. */
  async #giveOne(): Promise<void> {
    const to = roomElsewhere(this.#owned)
    const job = to === undefined ? undefined : this.#card.jobs.findLast(({ id }) => this.#parts.jobs.isIdle(id))
    if (to !== undefined && job !== undefined) await this.#give({ job: job.id, from: this.self, to, reason: MORE_ROOM })
  }

  async #dropUnlessOwn(job: JobId): Promise<void> {
    const { owners } = this.#register
    const owner = owners.get(job)
    if (!owners.has(job) || owner === undefined || owner === this.self) return
    this.#parts.onPassed(job, 'another coordinator has it now')
    await this.#parts.jobs.drop(job)
  }

  async #take(passing: Passing): Promise<void> {
    const { job, from, reason } = passing
    if (!(await this.#parts.book.pass(job, from, this.self))) return
    this.#noteOwner(job, this.self)
    this.#parts.onPassed(job, `taken over: ${reason}`)
    await this.#open(job)
  }

  /** What fails is tried again with the next beat. */
  async #open(job: JobId): Promise<void> {
    await this.#parts.jobs.open(job).catch((error: unknown) => {
      this.#parts.onTrouble(`this coordinator has the job and cannot open it: ${describeError(error)}`, job)
    })
  }

  async #give({ job, from, to, reason }: Passing): Promise<boolean> {
    const { jobs, book, onPassed } = this.#parts
    if (!jobs.isIdle(job)) return false
    await jobs.close(job)
    try {
      if (!(await book.pass(job, from, to))) return false
      this.#noteOwner(job, to)
      onPassed(job, `given away: ${reason}`)
      return true
    } finally {
      await jobs.drop(job) // what stayed is opened again with the next beat
    }
  }

  /** Jobs that it was given and does not have open yet. */
  #underWayTo(id: CoordinatorId, open: CoordinatorCard['jobs']): number {
    const now = this.#parts.clock.now()
    for (const [job, { at }] of this.#given) if (now - at > OPENING_MS) this.#given.delete(job)
    return [...this.#given].filter(([job, { to }]) => to === id && !open.some((one) => one.id === job)).length
  }

  #noteOwner(job: JobId, owner: CoordinatorId): void {
    if (owner !== this.self) this.#given.set(job, { to: owner, at: this.#parts.clock.now() })
    this.#register = { ...this.#register, owners: new Map(this.#register.owners).set(job, owner) }
  }

  /** Volunteers that one sends to another find it there. @throws GridError 'usage' */
  #requireReachable(): void {
    const own = this.#parts.card()
    for (const { card } of this.#others) {
      const isFar = card.machine !== own.machine
      const local = [own.url, card.url].find((url) => isFar && isLoopbackUrl(url))
      if (local === undefined) continue
      throw new GridError(
        'usage',
        `expected coordinators whose volunteers reach each of them, got ${local} beside one on another machine; ` +
          'start each with --public-url, or with --host and an address of its own',
      )
    }
  }
}
