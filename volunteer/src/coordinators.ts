// Which coordinator of its grid a volunteer speaks to: the one that its owner named, or another that this one names. A
// coordinator sends its volunteers to no machine of others (docs/SECURITY.md): an address counts when it is of the same
// authority, or when the volunteer's owner named it.
import { GridError, isSameAuthority, MAX_COORDINATORS } from '@starling-grid/protocol'
import type { CoordinatorDoor, VolunteerHost } from './host.ts'

export class Coordinators {
  readonly #host: Pick<VolunteerHost, keyof CoordinatorDoor | 'at'>
  /** of the owner, its first one at the front */
  readonly #named: readonly string[]
  /** the one that named others last, and these */
  #told: readonly string[] = []
  #door: CoordinatorDoor

  constructor(host: Pick<VolunteerHost, keyof CoordinatorDoor | 'at'>, alsoNamed: readonly string[] = []) {
    this.#host = host
    this.#door = host
    this.#named = [host.coordinatorUrl, ...alsoNamed]
  }

  /** The present one. */
  get door(): CoordinatorDoor {
    return this.#door
  }

  get url(): string {
    return this.#door.coordinatorUrl
  }

  /** Others that a host without `at` can go to. */
  get others(): readonly string[] {
    return this.#told.filter((url) => url !== this.url)
  }

  /** How many there are to ask. */
  get count(): number {
    return this.#known.length
  }

  /** The present one names the others; it stays known when it sends this volunteer to one of them. */
  learn(urls: readonly string[]): void {
    this.#told = [this.url, ...urls.slice(0, MAX_COORDINATORS).filter((url) => this.mayFollow(url))]
  }

  mayFollow(url: string): boolean {
    return this.#named.includes(url) || this.#named.some((named) => isSameAuthority(named, url))
  }

  /** @throws GridError 'coordinator-lost' when it may not go there */
  follow(url: string): void {
    if (!this.mayFollow(url))
      throw new GridError(
        'coordinator-lost',
        `expected a coordinator of the same authority as ${this.#named.join(', ')}, got ${url.slice(0, 100)}; ` +
          'name it too at the start of this volunteer if you trust it',
      )
    this.#go(url)
  }

  /** The present one does not answer: the next one is asked. */
  turn(): void {
    const known = this.#known
    const next = known[(known.indexOf(this.url) + 1) % known.length]
    if (next !== undefined) this.#go(next)
  }

  get #known(): string[] {
    if (this.#host.at === undefined) return [this.url]
    return [...new Set([...this.#named, ...this.#told, this.url])]
  }

  #go(url: string): void {
    if (url === this.url) return
    const { at } = this.#host
    if (url === this.#host.coordinatorUrl) this.#door = this.#host
    else if (at !== undefined) this.#door = at.call(this.#host, url)
  }
}
