// The reduces of the model: when all members of a generation contributed, each has the sum after the time that a ring takes.
import type { Manifest, MemberId } from '@starling-grid/protocol'
import { sha256Name } from '@starling-grid/protocol'
import type { Clock } from './clock.ts'
import type { Setting } from './setting.ts'
import type { ModelVolunteer } from './volunteers.ts'

/** ms until neighbours know that a link closed with its process */
const NOTICE_MS = 100

interface Reduce {
  readonly size: number
  readonly shares: Map<number, { readonly volunteer: ModelVolunteer; readonly manifest: Manifest }>
}

export class Rings {
  readonly #clock: Clock
  readonly #setting: Setting
  readonly #reduces = new Map<string, Reduce>()
  /** who is alive, to tell neighbours of a loss */
  readonly #volunteers: ReadonlyMap<MemberId, ModelVolunteer>

  constructor(clock: Clock, setting: Setting, volunteers: ReadonlyMap<MemberId, ModelVolunteer>) {
    this.#clock = clock
    this.#setting = setting
    this.#volunteers = volunteers
  }

  contribute(volunteer: ModelVolunteer, { gen, step, manifest }: { readonly gen: number; readonly step: number; readonly manifest: Manifest }): void {
    const { ring } = volunteer.core
    if (ring === undefined) return
    const key = `${gen} ${step}`
    const reduce = this.#reduces.get(key) ?? { size: ring.members.length, shares: new Map() }
    this.#reduces.set(key, reduce)
    reduce.shares.set(ring.position, { volunteer, manifest })
    if (reduce.shares.size < reduce.size) return
    this.#reduces.delete(key)
    this.#clock.after(this.#ringMs(reduce.size), () => this.#finish(reduce, { gen, step }))
  }

  /** Source: performance.md §6; the bytes of a reduce-scatter and an all-gather, and a latency for each of their hops. */
  #ringMs(size: number): number {
    const { links, gradientBytes } = this.#setting
    if (size === 1) return 0
    return 2 * (size - 1) * (links.latencyMs + (1000 * gradientBytes) / (size * Math.min(links.up, links.down)))
  }

  #finish({ size, shares }: Reduce, at: { readonly gen: number; readonly step: number }): void {
    const members = Array.from({ length: size }, (_, i) => shares.get(i)).filter((share) => share !== undefined)
    if (members.some(({ volunteer }) => !volunteer.alive)) return
    const manifests = members.map(({ manifest }) => manifest)
    for (const { volunteer } of members) volunteer.take({ type: 'reduced', ...at, manifests, gradDigest: sha256Name('0'.repeat(64)) })
  }

  /** Its neighbours find their links closed. */
  lost(id: MemberId): void {
    this.#clock.after(NOTICE_MS, () => {
      for (const volunteer of this.#volunteers.values()) {
        const { ring } = volunteer.core
        const place = ring?.members.indexOf(id) ?? -1
        if (ring === undefined || place < 0 || !volunteer.alive) continue
        const distance = Math.abs(place - ring.position)
        if (distance !== 1 && distance !== ring.members.length - 1) continue
        volunteer.take({ type: 'trouble', gen: ring.gen, blamed: id, why: 'closed', code: 'link-lost', message: 'the link closed' })
      }
    })
  }
}
