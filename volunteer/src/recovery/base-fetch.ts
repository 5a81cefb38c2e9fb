// The asking side of a base: a newcomer that prepares fetches shards from members, and from the coordinator what they
// do not give. Some of them fetch it, too, and give what they have: a room that opens at once takes it from the
// coordinator once. Every shard is checked by its hash. A member that lies, refuses or stalls is asked no more.
import {
  bytesOfHex,
  type Clock,
  describeError,
  type Frame,
  GridError,
  MAX_SHARD_BYTES,
  type MemberId,
  type MessageTo,
  type Sha256,
  sha256Of,
} from '@starling-grid/protocol'
import { LinkSet } from '../link/link-set.ts'
import type { PeerLink, PeerNetwork } from '../link/peer-link.ts'
import { blank } from './state-server.ts'

/** Bytes of a member's reason that are shown. */
const MOST_REFUSAL = 300
/** ms without a frame before a member counts as dead */
const STALL_MS = 5000
/** ms for the coordinator to name members: then it serves */
const PATIENCE_MS = 5000
/** ms until a member is asked again that has the shard not yet, or serves others first */
const AGAIN_MS = 200
/** ms in which a member has nothing that is wanted before it is asked no more: a shard at 200 kB/s takes as long */
const LATE_MS = 20_000
/** ms after a lost link until the coordinator is asked for others: a source that became a member is back by then */
const SEEK_AGAIN_MS = 2000

/** What the coordinator says of sources, and of newcomers that may ask here. */
export type BaseNews = MessageTo<'base-sources' | 'share-base'>

export interface BaseFetchParts {
  readonly clock: Clock
  readonly network: PeerNetwork
  readonly linkOpenMs: number | undefined
  openRelay(member: MemberId, signal: AbortSignal): Promise<PeerLink>
  /** Asks the coordinator for members that have the base; `found` takes its answer. */
  seek(): void
  /** of another newcomer, over a link that it opened */
  onQuestion(from: MemberId, frame: Frame): void
  fromCoordinator(name: Sha256): Promise<Uint8Array>
  /** told after each shard, and when a member is given up */
  onProgress(progress: BaseProgress): void
}

/** Where the bytes came from. */
export interface BaseProgress {
  readonly fromMembers: number
  readonly fromCoordinator: number
  /** members that gave shards */
  readonly members: number
  /** why the last member is asked no more; absent: none was given up */
  readonly trouble?: string
}

/** One question to one member; an answer is whole, or fails. */
interface ShardQuestion {
  take(frame: Frame): void
  fail(error: unknown): void
}

export class BaseFetch {
  readonly #parts: BaseFetchParts
  readonly #end = new AbortController()
  readonly #questions = new Map<MemberId, ShardQuestion>()
  /** linked and idle */
  readonly #idle: MemberId[] = []
  /** linked, or being linked */
  readonly #sources = new Set<MemberId>()
  /** given up, whatever the coordinator says: only a link that was lost may be opened again */
  readonly #shunned = new Set<MemberId>()
  /** since when a source had nothing that was wanted, ms */
  readonly #lateSince = new Map<MemberId, number>()
  readonly #givers = new Set<MemberId>()
  /** those that wait for an idle member */
  #waiting: (() => void)[] = []
  /** sources that are linked, or may still be: a link opens or fails within its own time */
  #hopes = 0
  /** shards that are being fetched */
  #wanted = 0
  #begun: Promise<void> | undefined
  #seeksAgain = false
  #onSources: (members: readonly MemberId[]) => void = () => undefined
  #progress: BaseProgress = { fromMembers: 0, fromCoordinator: 0, members: 0 }
  readonly links: LinkSet

  constructor(parts: BaseFetchParts) {
    this.#parts = parts
    const { clock, network, openRelay, linkOpenMs, onQuestion } = parts
    this.links = new LinkSet(
      network,
      openRelay,
      {
        onFrame: (from, frame) =>
          frame.type === 'shard' ? onQuestion(from, frame) : this.#questions.get(from)?.take(frame),
        onLost: (from, _, error) => this.#lost(from, error),
      },
      { clock, linkOpenMs },
    )
  }

  /** The coordinator's answer. */
  found(sources: readonly MemberId[]): void {
    this.#onSources(sources)
  }

  /** @throws what the coordinator's answer throws, which is the last resort */
  shard = async (name: Sha256): Promise<Uint8Array> => {
    this.#wanted++
    try {
      this.#begun ??= this.#seek()
      await this.#begun
      return (await this.#fromMembers(name)) ?? (await this.#fromCoordinator(name))
    } finally {
      this.#wanted--
    }
  }

  async #fromCoordinator(name: Sha256): Promise<Uint8Array> {
    const bytes = await this.#parts.fromCoordinator(name)
    this.#count({ fromCoordinator: this.#progress.fromCoordinator + bytes.byteLength })
    return bytes
  }

  /** Links close: what is read later comes from the coordinator. */
  close(): void {
    if (this.#end.signal.aborted) return
    this.#end.abort(new GridError('cancelled', 'the base is here'))
    this.links.close()
    this.#wake()
  }

  /** Resolves when members that have the base are known, or none will be soon. */
  async #seek(): Promise<void> {
    if (this.#end.signal.aborted) return
    this.#hopes++
    const sources = await this.#sought()
    for (const source of sources) this.#link(source)
    this.#hopes--
    this.#wake()
  }

  /** None: there are none, or the coordinator did not answer. */
  #sought(): Promise<readonly MemberId[]> {
    const { clock, seek } = this.#parts
    const { signal } = this.#end
    const answer = new Promise<readonly MemberId[]>((resolve) => {
      this.#onSources = resolve
    })
    seek()
    return Promise.race([answer, clock.sleep(PATIENCE_MS, signal).then(() => [])])
  }

  #link(source: MemberId): void {
    const { signal } = this.#end
    if (signal.aborted || this.#sources.has(source) || this.#shunned.has(source)) return
    this.#sources.add(source)
    this.#hopes++
    void this.links.ensure(source, 'dial', signal).then(
      () => this.#release(source),
      (error: unknown) => this.#giveUp(source, error),
    )
  }

  /** Undefined: no member gave it. */
  async #fromMembers(name: Sha256): Promise<Uint8Array | undefined> {
    while (this.#hopes > 0 && !this.#end.signal.aborted) {
      const member = this.#idle.shift()
      if (member === undefined) {
        await this.#change()
        continue
      }
      try {
        const bytes = await this.#ask(member, name)
        if (bytes === undefined) {
          this.#rest(member)
          continue
        }
        this.#lateSince.delete(member)
        this.#givers.add(member)
        this.#count({ fromMembers: this.#progress.fromMembers + bytes.byteLength, members: this.#givers.size })
        this.#release(member)
        return bytes
      } catch (error) {
        this.#giveUp(member, error)
      }
    }
    return undefined
  }

  /**
   * Undefined: not yet. @throws GridError 'link-timeout', 'link-lost', 'checksum', 'message-malformed', or what the
   * member says
   */
  async #ask(member: MemberId, name: Sha256): Promise<Uint8Array | undefined> {
    const bytes = await this.#answer(member, name)
    if (bytes.byteLength === 0) return undefined
    if ((await sha256Of(bytes)) === name) return bytes
    throw new GridError('checksum', `expected shard ${name.slice(0, 12)}, got other bytes from ${short(member)}`)
  }

  #answer(member: MemberId, name: Sha256): Promise<Uint8Array> {
    const { clock } = this.#parts
    const { signal } = this.#end
    return new Promise((resolve, reject) => {
      const answer = new ShardAnswer()
      const end = (act: () => void): void => {
        cancelTimer()
        signal.removeEventListener('abort', abort)
        this.#questions.delete(member)
        act()
      }
      const fail = (error: unknown): void => end(() => reject(error))
      const abort = (): void => fail(signal.reason)
      const stalled = (): void =>
        fail(
          new GridError('link-timeout', `expected bytes from ${short(member)} within ${STALL_MS / 1000} s, got none`),
        )
      let cancelTimer = clock.timer(STALL_MS, stalled)
      signal.addEventListener('abort', abort)
      this.#questions.set(member, {
        fail,
        take(frame) {
          cancelTimer()
          cancelTimer = clock.timer(STALL_MS, stalled)
          try {
            const whole = answer.add(frame)
            if (whole !== undefined) end(() => resolve(whole))
          } catch (error) {
            fail(error)
          }
        },
      })
      this.links.send(member, { ...blank(0), type: 'shard', payload: bytesOfHex(name) })
    })
  }

  /** Whoever asks it, or finds it idle, gives it up; it may be back by then. */
  #lost(member: MemberId, error: GridError): void {
    if (!this.#sources.delete(member) || this.#end.signal.aborted) return
    void this.#seekAgain()
    this.#questions.get(member)?.fail(error)
    const at = this.#idle.indexOf(member)
    if (at < 0) return
    this.#idle.splice(at, 1)
    this.#giveUp(member, error)
  }

  async #seekAgain(): Promise<void> {
    if (this.#seeksAgain) return
    this.#seeksAgain = true
    this.#hopes++
    await this.#parts.clock.sleep(SEEK_AGAIN_MS, this.#end.signal)
    this.#seeksAgain = false
    await this.#seek()
    this.#hopes--
    this.#wake()
  }

  /** It has nothing for this question yet: others are asked meanwhile. */
  #rest(member: MemberId): void {
    const { clock } = this.#parts
    const since = this.#lateSince.get(member) ?? clock.now()
    this.#lateSince.set(member, since)
    if (clock.now() - since > LATE_MS)
      return this.#giveUp(member, new GridError('link-timeout', `nothing that is wanted for ${LATE_MS / 1000} s`))
    void clock.sleep(AGAIN_MS, this.#end.signal).then(() => this.#release(member))
  }

  #release(member: MemberId): void {
    if (!this.links.has(member)) return this.#giveUp(member, new GridError('link-lost', 'the link is gone'))
    this.#idle.push(member)
    this.#wake()
  }

  #giveUp(member: MemberId, error: unknown): void {
    this.#hopes--
    if (this.#sources.delete(member)) this.#shunned.add(member)
    if (this.#wanted > 0 && !this.#end.signal.aborted)
      this.#count({ trouble: `${short(member)}: ${describeError(error)}` })
    this.#wake()
  }

  /** A member became idle, or was given up, or all is over. */
  #change(): Promise<void> {
    return new Promise((resolve) => void this.#waiting.push(resolve))
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve()
  }

  #count(change: Partial<BaseProgress>): void {
    this.#progress = { ...this.#progress, ...change }
    this.#parts.onProgress(this.#progress)
  }
}

/** The frames of an answer, in their order. One that is empty says: not yet. */
class ShardAnswer {
  #bytes: Uint8Array<ArrayBuffer> | undefined
  #next = 0

  /** The whole, when it is there. @throws GridError 'message-malformed', or the member's refusal */
  add({ type, bucket, offset, payload }: Frame): Uint8Array | undefined {
    if (type === 'refusal')
      throw new GridError('base-stale', `it says: ${new TextDecoder().decode(payload.subarray(0, MOST_REFUSAL))}`)
    this.#bytes ??= new Uint8Array(type === 'chunk' && bucket <= MAX_SHARD_BYTES ? bucket : 0)
    const end = offset + payload.byteLength
    const fits =
      bucket === this.#bytes.byteLength && offset === this.#next && end <= bucket && (end > offset || bucket === 0)
    if (type !== 'chunk' || !fits)
      throw new GridError(
        'message-malformed',
        `expected the bytes of a shard in their order, got ${payload.byteLength} at ${offset} of ${bucket} (${type})`,
      )
    this.#bytes.set(payload, offset)
    this.#next = end
    return end === bucket ? this.#bytes : undefined
  }
}

function short(member: MemberId): string {
  return member.slice(0, 8)
}
