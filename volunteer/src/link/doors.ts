// Links over TCP between Node members: who asks whom for a door, which certificates are let in, and which addresses are
// dialled. What a coordinator says is no reason to trust: it could name any address, and its own certificate. The
// sockets are the platform's (client-node/src/tcp-door.ts).
import { type Clock, type MemberDoor, type MemberId, type Sha256 } from '@starling-grid/protocol'
import { dialable } from './candidate-gate.ts'
import type { ChannelLink } from './channel-link.ts'
import type { LinkOpeningOptions } from './link-opening.ts'
import type { DoorSignal } from './signal-gate.ts'

/** ms for a member to say where its door is: signalling answers in one round trip, a busy member later */
const ANSWER_MS = 1000
/**
 * ms for a link to open at a door, and not less when it does not: how soon WebRTC follows tells a coordinator nothing
 * of the addresses that it named
 */
const OPEN_MS = 2000
/** ms before a door that did not open is tried again: a firewall stays */
const RETRY_MS = 10 * 60_000
/** ms that the certificate of a member that knocked is let in */
const GUEST_MS = 10_000
/** Addresses that let this member in at no time, tried in an hour. Rings of 32 need fewer; a scan needs more. */
const MOST_TRIED = 128
const HOUR_MS = 3_600_000

/** The platform's listening socket and certificate. */
export interface DoorKeeper {
  readonly own: MemberDoor
  /**
   * A link to this member at one of these addresses, behind this certificate and no other.
   * @throws GridError 'link-lost', or the signal's reason
   */
  dial(to: { readonly member: MemberId; readonly door: MemberDoor }, options: LinkOpeningOptions): Promise<ChannelLink>
  /** From here on connections are answered. */
  open(host: DoorHost): void
  close(): void
}

export interface DoorHost {
  /** The member that may come with this certificate now; undefined: it is not let in. */
  guestWith(fingerprint: Sha256): MemberId | undefined
  options(dialled: boolean): LinkOpeningOptions
  /** A link is on its way; `opening` rejects when nothing comes of it. */
  arriving(from: MemberId, opening: Promise<ChannelLink>): void
}

export interface DoorsParts {
  readonly clock: Clock
  /** of the one that it has now */
  readonly coordinatorUrl: () => string
  /** absent: this platform has no door, and says so */
  readonly keeper: DoorKeeper | undefined
  /** through signalling */
  say(message: { readonly type: 'KNOCK' | 'DOOR'; readonly dst: MemberId; readonly payload?: MemberDoor }): void
  options(dialled: boolean, milliseconds: number): LinkOpeningOptions
  /** May this member have another link? */
  hasRoom(member: MemberId): boolean
  arriving(from: MemberId, opening: Promise<ChannelLink>): void
}

interface Guest {
  readonly fingerprint: Sha256
  readonly until: number
}

export class MemberDoors {
  readonly #parts: DoorsParts
  readonly #asked = new Map<MemberId, (door: MemberDoor | undefined) => void>()
  readonly #guests = new Map<MemberId, Guest>()
  /** member → when its door is tried again (ms) */
  readonly #shut = new Map<MemberId, number>()
  /** address and port → when it was dialled (ms) */
  readonly #tried = new Map<string, number>()

  constructor(parts: DoorsParts) {
    this.#parts = parts
    parts.keeper?.open({
      guestWith: (fingerprint) => this.#guestWith(fingerprint),
      options: (dialled) => parts.options(dialled, OPEN_MS),
      arriving: parts.arriving,
    })
  }

  /**
   * A link through the door of this member; undefined when it has none, or none that opens in time, and in `within` ms
   * at all.
   * @throws the signal's reason
   */
  async dial(member: MemberId, within: number, signal: AbortSignal): Promise<ChannelLink | undefined> {
    const { clock, keeper } = this.#parts
    if (keeper === undefined || (this.#shut.get(member) ?? 0) > clock.now()) return undefined
    const door = await this.#ask(member, keeper.own, { ms: Math.min(ANSWER_MS, within / 3), signal })
    signal.throwIfAborted()
    const addresses = door === undefined ? [] : this.#allowed(door)
    if (door === undefined || addresses.length === 0) return undefined
    const milliseconds = Math.min(OPEN_MS, (2 * within) / 3)
    const end = clock.now() + milliseconds
    try {
      const link = await keeper.dial(
        { member, door: { ...door, addresses } },
        { ...this.#parts.options(true, milliseconds), signal },
      )
      for (const address of addresses) this.#tried.delete(endpoint(address, door))
      return link
    } catch {
      this.#shut.set(member, clock.now() + RETRY_MS)
      await clock.sleep(end - clock.now(), signal)
      signal.throwIfAborted()
      return undefined
    }
  }

  /** What the gate of signalling let through. */
  heard(message: DoorSignal): void {
    const { src } = message
    if (message.type === 'DOOR') return this.#asked.get(src)?.(message.payload)
    const { clock, keeper, say } = this.#parts
    if (keeper !== undefined)
      this.#guests.set(src, { fingerprint: message.payload.fingerprint, until: clock.now() + GUEST_MS })
    say({ type: 'DOOR', dst: src, ...(keeper === undefined ? {} : { payload: keeper.own }) })
  }

  /** Certificates of all others are let in no more, and what is known of their doors is forgotten. */
  expect(members: readonly MemberId[]): void {
    const expected = new Set(members)
    for (const known of [this.#guests, this.#shut])
      for (const member of known.keys()) if (!expected.has(member)) known.delete(member)
  }

  stop(): void {
    this.#parts.keeper?.close()
  }

  #guestWith(fingerprint: Sha256): MemberId | undefined {
    const now = this.#parts.clock.now()
    for (const [member, guest] of this.#guests)
      if (guest.fingerprint === fingerprint && guest.until > now && this.#parts.hasRoom(member)) return member
    return undefined
  }

  async #ask(
    dst: MemberId,
    own: MemberDoor,
    { ms, signal }: { readonly ms: number; readonly signal: AbortSignal },
  ): Promise<MemberDoor | undefined> {
    const answered = new AbortController()
    let door: MemberDoor | undefined
    this.#asked.set(dst, (said) => {
      door = said
      answered.abort()
    })
    this.#parts.say({ type: 'KNOCK', dst, payload: own })
    await this.#parts.clock.sleep(ms, AbortSignal.any([signal, answered.signal]))
    this.#asked.delete(dst)
    return door
  }

  /** Each counts as tried from here on, until it lets this member in. */
  #allowed(door: MemberDoor): string[] {
    const { clock, coordinatorUrl, keeper } = this.#parts
    const now = clock.now()
    for (const [tried, at] of this.#tried) if (now - at > HOUR_MS) this.#tried.delete(tried)
    if (door.fingerprint === keeper?.own.fingerprint) return []
    const addresses = dialable(door.addresses, coordinatorUrl())
    const known = addresses.filter((address) => this.#tried.has(endpoint(address, door)))
    const others = addresses.filter((address) => !known.includes(address))
    const allowed = [...known, ...others.slice(0, Math.max(0, MOST_TRIED - this.#tried.size))]
    for (const address of allowed) this.#tried.set(endpoint(address, door), now)
    return allowed
  }
}

function endpoint(address: string, { port }: MemberDoor): string {
  return `${address} ${port}`
}
