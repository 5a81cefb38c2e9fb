// The links of one rank to the others: opened when first needed, drained under their own back-pressure, kept alive by
// heartbeats, given up after silence. A rank that was lost stays lost: what it had received cannot be known any more.
// Knows frames only as bytes to send and as checked frames that came.
import {
  describeError,
  type Frame,
  FramePacker,
  GridError,
  HEARTBEAT_MS,
  packFrame,
  unpackFrame,
  type Clock,
  type CancelTimer,
} from '@starling-grid/protocol'
import type { PeerLink } from '../link/peer-link.ts'
import type { PackFrame } from './exchange.ts'
import { type Mesh, SIGN_OF_LIFE } from './mesh.ts'

/** Milliseconds that `stop` waits for its frames to reach the other ranks. */
const LEAVING_MS = 5000
/** The number of the heartbeat that a rank sends last; the others have none. */
const LAST_BEAT = 1
/** What a heartbeat's `hop` says (frame.ts). */
const ASKS = 0
const ANSWERS = 1
/** Milliseconds between two looks at what a link has still to send: a link has no event for that. */
const LOOK_MS = 5

/** Generation 0 tells a sign of life from an operation's heartbeats, whose `step` counts them. */
function isLastBeat({ type, generation, step }: Frame): boolean {
  return type === 'heartbeat' && generation === SIGN_OF_LIFE.generation && step === LAST_BEAT
}

export interface RankLinkEvents {
  /**
   * the next bytes for a rank, which stay as they are until the next call; asked again and again while there are some
   */
  nextFrame(rank: number, pack: PackFrame): Uint8Array<ArrayBuffer> | undefined
  /** a checked frame, heartbeats apart; throwing a GridError loses the rank */
  onFrame(rank: number, frame: Frame): void
  onLost(rank: number, error: GridError): void
}

export interface RankLinkTimes {
  readonly clock: Clock
  /** ms without a frame after which a rank is lost */
  readonly silenceMs: number
}

export class RankLinks {
  readonly #mesh: Mesh
  readonly #events: RankLinkEvents
  readonly #silenceMs: number
  readonly #links = new Map<number, PeerLink>()
  readonly #opening = new Map<number, Promise<PeerLink>>()
  readonly #draining = new Set<number>()
  /** one for each link: a link has copied the bytes of one frame before the next is packed */
  readonly #packers = new Map<number, FramePacker>()
  readonly #heardAt = new Map<number, number>()
  readonly #lost = new Map<number, GridError>()
  /** have what this rank sent, up to its end */
  readonly #answered = new Set<number>()
  readonly #stopping = new AbortController()
  readonly #clock: Clock
  #stopBeat: CancelTimer = () => undefined
  #lastBeat = 0
  bytesSent = 0
  bytesReceived = 0

  constructor(mesh: Mesh, events: RankLinkEvents, { clock, silenceMs }: RankLinkTimes) {
    this.#clock = clock
    this.#mesh = mesh
    this.#events = events
    this.#silenceMs = silenceMs
  }

  get rank(): number {
    return this.#mesh.rank
  }

  start(): void {
    this.#mesh.listen((rank, link) => this.#add(rank, link))
    this.#lastBeat = this.#clock.now()
    this.#stopBeat = this.#clock.every(HEARTBEAT_MS, () => this.#heartbeat())
  }

  /** Waits, for a short while, until the other ranks have what was accepted for them, then closes everything. */
  async stop(): Promise<void> {
    if (this.#stopping.signal.aborted) return
    this.#stopBeat()
    const end = this.#clock.now() + LEAVING_MS
    const until = async (done: () => boolean): Promise<void> => {
      while (!done() && this.#clock.now() < end) await this.#clock.sleep(LOOK_MS)
    }
    await until(() => this.#draining.size === 0)
    // A connection that closes drops what is still on its way. Frames keep their order, so an answer to the last one
    // shows that all have arrived.
    for (const link of this.#links.values()) this.#beat(link, { step: LAST_BEAT, hop: ASKS })
    await until(() => [...this.#links.keys()].every((rank) => this.#answered.has(rank)))
    this.#stopping.abort(new GridError('cancelled', 'the group was closed'))
    for (const link of this.#links.values()) link.close('leaving')
    this.#mesh.stop()
  }

  /** Why a rank is lost; undefined while it is not. */
  lost(rank: number): GridError | undefined {
    return this.#lost.get(rank)
  }

  hasLink(rank: number): boolean {
    return this.#links.has(rank)
  }

  /** Opens the link to a rank, in the background. */
  reach(rank: number): void {
    if (!this.#links.has(rank)) this.#link(rank).catch(() => {}) // told by onLost
  }

  /** Sends to a rank while there are frames for it. */
  pump(rank: number): void {
    if (this.#draining.has(rank) || this.#lost.has(rank)) return
    this.#draining.add(rank)
    void this.#drain(rank)
  }

  async #drain(rank: number): Promise<void> {
    const packer = this.#packers.get(rank) ?? new FramePacker()
    this.#packers.set(rank, packer)
    const next = (): Uint8Array<ArrayBuffer> | undefined => this.#events.nextFrame(rank, (frame) => packer.pack(frame))
    try {
      for (let bytes = next(); bytes !== undefined; bytes = next()) {
        const link = this.#links.get(rank) ?? (await this.#link(rank))
        this.bytesSent += bytes.byteLength
        await link.send(bytes)
      }
    } catch {
      // the link's onClose, or the failed connect, reports the loss
    } finally {
      this.#draining.delete(rank)
    }
  }

  #link(rank: number): Promise<PeerLink> {
    const opening = this.#opening.get(rank) ?? this.#connect(rank)
    this.#opening.set(rank, opening)
    return opening
  }

  async #connect(rank: number): Promise<PeerLink> {
    try {
      const link = await this.#mesh.connect(rank, this.#stopping.signal)
      this.#add(rank, link)
      return link
    } catch (error) {
      this.#lose(
        rank,
        error instanceof GridError ? error : new GridError('link-lost', describeError(error), { cause: error }),
      )
      throw error
    }
  }

  #add(rank: number, link: PeerLink): void {
    if (this.#lost.has(rank)) return link.close('this rank was lost')
    if (this.#links.has(rank)) return
    this.#links.set(rank, link)
    this.#heardAt.set(rank, this.#clock.now())
    link.onClose = (reason) => this.#lose(rank, new GridError('link-lost', reason))
    link.onFrame = (bytes) => this.#received(rank, bytes)
    this.pump(rank)
  }

  #received(rank: number, bytes: Uint8Array): void {
    this.#heardAt.set(rank, this.#clock.now())
    this.bytesReceived += bytes.byteLength
    try {
      const frame = unpackFrame(bytes)
      if (isLastBeat(frame)) this.#heardLast(rank, frame)
      else this.#events.onFrame(rank, frame)
    } catch (error) {
      if (!(error instanceof GridError)) throw error // a bug of ours: the link closes with its message
      this.#lose(rank, error)
    }
  }

  #lose(rank: number, error: GridError): void {
    if (this.#lost.has(rank) || this.#stopping.signal.aborted) return
    this.#lost.set(rank, error)
    this.#links.get(rank)?.close(error.message)
    this.#links.delete(rank)
    this.#events.onLost(rank, error)
  }

  /**
   * When our own beat is late, this machine slept or computed: what the others sent meanwhile has not been read yet.
   */
  #heartbeat(): void {
    const now = this.#clock.now()
    const late = now - this.#lastBeat > 2 * HEARTBEAT_MS
    this.#lastBeat = now
    for (const [rank, link] of this.#links) {
      const heard = this.#heardAt.get(rank) ?? now
      if (late) this.#heardAt.set(rank, now)
      else if (now - heard > this.#silenceMs)
        this.#lose(rank, new GridError('link-lost', `silent for ${this.#silenceMs / 1000} s`))
      // While frames wait, they are sign of life enough.
      if (link.bufferedBytes === 0) this.#beat(link)
    }
  }

  #heardLast(rank: number, { hop }: Frame): void {
    if (hop === ANSWERS) this.#answered.add(rank)
    else this.#beat(this.#links.get(rank), { step: LAST_BEAT, hop: ANSWERS })
  }

  #beat(link: PeerLink | undefined, says: Partial<Frame> = {}): void {
    link?.send(packFrame({ ...SIGN_OF_LIFE, ...says })).catch(() => {}) // a link that closed says so itself
  }
}
