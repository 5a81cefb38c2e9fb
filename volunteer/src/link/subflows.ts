// A link over WebRTC: one connection, and up to three more where packets get lost on the way (further-subflows.ts).
// Each has its own SCTP and window; a frame takes the one that is freest, and the receiver puts frames in order again.
import { type Clock, GridError } from '@starling-grid/protocol'
import { ChannelLink, type Channel, MAX_LINK_FRAME_BYTES } from './channel-link.ts'
import type { Receipt } from './flight-window.ts'
import { costOf, FrameNumbers, FrameOrder, MOST_AHEAD_BYTES, stepsTo } from './frame-order.ts'
import { FurtherSubflows } from './further-subflows.ts'
import type { Subflow } from './rtc-subflow.ts'

/** Four carry three quarters of a line that loses one packet in 200; each costs sockets and memory (decision 54). */
const MOST_SUBFLOWS = 4
/** What a connection's label says before the label of the first one. */
const JOINS = 'joins_'
/** Of two numbers modulo 2³², one that is so much further is behind. */
const OLD = 2 ** 31

export interface SubflowsParts {
  readonly clock: Clock
  /** Opens another connection with this label and lets it `join`. False: it did not. */
  more(label: string): Promise<boolean>
}

/** The label of the first connection of the link that this one is to join; undefined: it is a link of its own. */
export function linkToJoin(label: string): string | undefined {
  return label.startsWith(JOINS) ? label.slice(JOINS.length) : undefined
}

export class Subflows implements Channel {
  readonly link: ChannelLink
  readonly label: string
  readonly #parts: SubflowsParts
  readonly #all: Subflow[] = []
  readonly #further = new FurtherSubflows()
  readonly #order = new FrameOrder()
  readonly #numbers = new FrameNumbers()
  /** of the first frame that the other side has not handed on, as far as this side knows */
  #known = 0
  /** of the frames from there on */
  readonly #costs: number[] = []
  #cost = 0

  constructor(first: Subflow, parts: SubflowsParts) {
    this.link = new ChannelLink(first.link.peer, this, first.link.carrier)
    this.label = first.label
    this.#parts = parts
    this.join(first)
  }

  get size(): number {
    return this.#all.length
  }

  /** Another connection, open and greeted. False: there is no room for it. */
  join(subflow: Subflow): boolean {
    if (this.#all.length >= MOST_SUBFLOWS) return false
    this.#all.push(subflow)
    subflow.nextFrame = () => this.#order.next
    subflow.onReceipt = (receipt, wasFull) => this.#arrived(receipt, wasFull)
    subflow.link.onClose = (reason) => this.link.close(reason)
    subflow.link.onFrame = (message) => this.#received(message)
    subflow.sendReceipt()
    for (const { flight } of this.#all) flight.isShared = this.#all.length > 1
    this.link.drained()
    return true
  }

  get bufferedBytes(): number {
    return this.#all.reduce((sum, { link }) => sum + link.bufferedBytes, 0)
  }

  get hasRoom(): boolean {
    return this.#freest !== undefined
  }

  write(frame: Uint8Array<ArrayBuffer>): void {
    const subflow = this.#freest
    if (subflow === undefined) throw new Error('internal: a frame is written where there is room alone')
    subflow.write(this.#numbers.messageOf(frame))
    this.#costs.push(costOf(frame))
    this.#cost += costOf(frame)
  }

  /** One connection that ends is the end of all: they go the same way. */
  close(reason: string): void {
    for (const { link } of this.#all) link.close(reason)
  }

  get #freest(): Subflow | undefined {
    if (this.#all.length > 1 && this.#cost > MOST_AHEAD_BYTES - MAX_LINK_FRAME_BYTES) return undefined
    const free = this.#all.filter(({ flight }) => flight.hasRoom)
    return free.toSorted((a, b) => a.flight.underWay - b.flight.underWay)[0]
  }

  #received(message: Uint8Array): void {
    for (const frame of this.#order.arrived(message)) this.link.received(frame)
  }

  /** @throws GridError 'message-malformed' */
  #arrived({ next }: Receipt, wasFull: boolean): void {
    this.#handedOn(next)
    const isDue = this.#further.noted(wasFull, this.#parts.clock.now())
    if (isDue && this.#all.length < MOST_SUBFLOWS) void this.#measure()
    this.link.drained()
  }

  async #measure(): Promise<void> {
    const { clock, more } = this.#parts
    const [first] = this.#all
    const sample = await first?.samplePath().catch(() => undefined)
    const framesHeld = first?.flight.framesHeld(sample?.ms ?? 0) ?? 0
    if (!this.#further.measured(sample, framesHeld, clock.now())) return
    if (await more(JOINS + this.label)) this.#further.added(clock.now())
    else this.#further.failed(clock.now())
  }

  /** What receipts say comes over ways of their own: an old one tells nothing. */
  #handedOn(next: number): void {
    const frames = stepsTo(next, this.#known)
    if (frames >= OLD) return
    if (frames > this.#costs.length)
      throw new GridError(
        'message-malformed',
        `expected a receipt of at most ${this.#costs.length} more frames, got one of ${frames}; close the link`,
      )
    this.#known = next
    for (const cost of this.#costs.splice(0, frames)) this.#cost -= cost
  }
}
