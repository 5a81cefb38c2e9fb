// A direct link from its first byte to the moment both sides have greeted, whatever carries it. A link counts as open
// only when frames went both ways, and both ends proved who they are and which certificates they see.
import {
  type Clock,
  describeError,
  GridError,
  type LinkEnd,
  type LinkIdentity,
  linkProof,
  type MemberId,
  requireLinkProof,
} from '@starling-grid/protocol'
import type { ChannelLink } from './channel-link.ts'
import { greeting, greetingOf, requireGreeting } from './greeting.ts'

export interface LinkOpeningOptions {
  readonly self: MemberId
  /** both sides prove who they are, and which certificates they see */
  readonly identity?: LinkIdentity | undefined
  /** this side dialled, and greets first */
  readonly dialled: boolean
  /** after which the try is given up */
  readonly milliseconds: number
  readonly clock: Clock
  readonly signal: AbortSignal
}

/** Fingerprints of the certificates, as this side sees them. Read when a proof is made or checked. */
export interface SeenCertificates {
  readonly here: () => string
  readonly there: () => string
}

/** The carrier calls `opened` and `received`; the link's own `close` ends it. */
export class LinkOpening {
  readonly link: ChannelLink
  readonly #options: LinkOpeningOptions
  readonly #seen: SeenCertificates
  /** the other side's first frame came */
  #heard = false
  #settle: (failure: string | undefined) => void = () => {}
  readonly #settled = new Promise<string | undefined>((resolve) => {
    this.#settle = resolve
  })

  constructor(link: ChannelLink, options: LinkOpeningOptions, seen: SeenCertificates) {
    this.link = link
    this.#options = options
    this.#seen = seen
    void link.closed.then((reason) => this.#settle(reason))
  }

  /**
   * Calls `start` and waits for both greetings. @throws GridError 'link-lost', or the signal's reason; the link is
   * closed then
   */
  async open(start: () => void): Promise<ChannelLink> {
    const { link } = this
    const { signal, milliseconds, clock } = this.#options
    const cancelTimer = clock.timer(milliseconds, () => link.close(`not open after ${Math.round(milliseconds)} ms`))
    const abort = (): void => link.close(describeError(signal.reason))
    signal.addEventListener('abort', abort)
    try {
      if (signal.aborted) abort()
      else start()
      const failure = await this.#settled
      if (failure === undefined) return link
      signal.throwIfAborted()
      throw new GridError('link-lost', failure)
    } finally {
      cancelTimer()
      signal.removeEventListener('abort', abort)
    }
  }

  /** From the carrier: bytes can be sent. */
  opened(): void {
    if (this.#options.dialled) this.#closing(this.#greet())
  }

  /** From the carrier: a frame came. The link keeps what comes while the greeting is checked. */
  received(bytes: Uint8Array): void {
    if (this.#heard) return this.link.received(bytes)
    this.#heard = true
    this.#closing(this.#greeted(bytes))
  }

  /** No frame of ours leaves before our greeting. */
  async #greeted(bytes: Uint8Array): Promise<void> {
    const payload = requireGreeting(bytes)
    const { identity, dialled } = this.#options
    if (identity !== undefined) await requireLinkProof(payload, identity, this.#there(), this.#here())
    if (!dialled) await this.#greet()
    this.#settle(undefined)
  }

  async #greet(): Promise<void> {
    const { identity, self } = this.#options
    const frame =
      identity === undefined ? greeting(self) : greetingOf(await linkProof(identity, this.#here(), this.#there()))
    this.link.send(frame).catch(() => {})
  }

  #closing(work: Promise<void>): void {
    work.catch((error: unknown) => this.link.close(describeError(error)))
  }

  #here(): LinkEnd {
    return { member: this.#options.self, fingerprint: this.#seen.here() }
  }

  #there(): LinkEnd {
    return { member: this.link.peer, fingerprint: this.#seen.there() }
  }
}
