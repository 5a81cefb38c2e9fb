// The reduces of the model. All members of a generation contribute; then each has the sum after the time that a ring or
// a direct exchange takes. That time is by the coordinator's own formula.
import { exchangeMs } from '@starling-grid/coordinator/run'
import { type Exchange, type Manifest, type MemberId, sha256Name } from '@starling-grid/protocol'
import type { MemberCore, MemberGeneration, MemberInput } from '@starling-grid/volunteer/member'
import type { EventClock } from './clock.ts'
import type { Setting } from './setting.ts'

/** What rings know of a volunteer. */
export interface RingVolunteer {
  readonly core: MemberCore
  readonly alive: boolean
  /** bytes that went up and came down */
  moved(up: number, down: number): void
  take(input: MemberInput): void
}

/** ms until neighbours know that a link closed with its process */
const NOTICE_MS = 100

interface ModelReduce {
  readonly size: number
  readonly exchange: Exchange
  readonly assignments: Map<number, { readonly volunteer: RingVolunteer; readonly manifest: Manifest }>
}

export class Rings {
  readonly #clock: EventClock
  readonly #setting: Setting
  readonly #reduces = new Map<string, ModelReduce>()
  /** who is alive, to tell neighbours of a loss */
  readonly #volunteers: ReadonlyMap<MemberId, RingVolunteer>
  #isAnyFormed = false

  constructor(clock: EventClock, setting: Setting, volunteers: ReadonlyMap<MemberId, RingVolunteer>) {
    this.#clock = clock
    this.#setting = setting
    this.#volunteers = volunteers
  }

  /** A member is about to link to others: until then no member of a crowd is looked at when one of them goes. */
  forms(): void {
    this.#isAnyFormed = true
  }

  contribute(
    volunteer: RingVolunteer,
    { generation, step, manifest }: { readonly generation: number; readonly step: number; readonly manifest: Manifest },
  ): void {
    const { ring } = volunteer.core
    if (ring === undefined) return
    const key = `${generation} ${step}`
    const reduce = this.#reduces.get(key) ?? {
      size: ring.members.length,
      exchange: wayOf(ring),
      assignments: new Map(),
    }
    this.#reduces.set(key, reduce)
    reduce.assignments.set(ring.rank, { volunteer, manifest })
    if (reduce.assignments.size < reduce.size) return
    this.#reduces.delete(key)
    this.#clock.after(this.#exchangeMs(reduce), () => this.#finish(reduce, { generation, step }))
  }

  #exchangeMs({ size, exchange }: ModelReduce): number {
    const { links, exchangeBytes } = this.#setting
    return size === 1
      ? 0
      : exchangeMs(exchange, {
          members: size,
          bytes: exchangeBytes,
          latencyMs: links.latencyMs,
          bytesPerMs: Math.min(links.up, links.down) / 1000,
        })
  }

  #finish({ size, assignments }: ModelReduce, at: { readonly generation: number; readonly step: number }): void {
    const members = Array.from({ length: size }, (_, i) => assignments.get(i)).filter((share) => share !== undefined)
    if (members.some(({ volunteer }) => !volunteer.alive)) return
    const bytes = sentBytes(size, this.#setting.exchangeBytes)
    const manifests = members.map(({ manifest }) => manifest)
    for (const { volunteer } of members) {
      volunteer.moved(bytes, bytes)
      volunteer.take({ type: 'reduced', ...at, manifests, gradDigest: sha256Name('0'.repeat(64)) })
    }
  }

  /** Those who were linked to it find their links closed. */
  lost(id: MemberId): void {
    this.#clock.after(NOTICE_MS, () => {
      if (!this.#isAnyFormed) return
      for (const volunteer of this.#volunteers.values()) {
        const { ring } = volunteer.core
        const rank = ring?.members.indexOf(id) ?? -1
        if (ring === undefined || rank < 0 || !volunteer.alive) continue
        const distance = Math.abs(rank - ring.rank)
        if (wayOf(ring) === 'ring' && distance !== 1 && distance !== ring.members.length - 1) continue
        volunteer.take({
          type: 'trouble',
          generation: ring.generation,
          blamed: id,
          why: 'closed',
          code: 'link-lost',
          message: 'the link closed',
        })
      }
    })
  }
}

/** Either way a member sends as much, and receives as much. */
function sentBytes(members: number, exchangeBytes: number): number {
  return ((2 * (members - 1)) / members) * exchangeBytes
}

/** Which way the frames of a generation take. */
export function wayOf({ exchange }: Pick<MemberGeneration, 'exchange'>): Exchange {
  return exchange?.type ?? 'ring'
}
