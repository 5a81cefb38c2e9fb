// Invites of volunteers, for a coordinator that takes only those who have one. Each is kept by its hash. Its uses are
// counted by the keys of volunteers, so that one who comes back, also after a restart, costs no second use.
import { GridError, type InviteView, type JobId, SerialQueue, type VolunteerId } from '@starling-grid/protocol'
import { Guesses } from '../api/guesses.ts'
import type { CoordinatorClock } from '../clock.ts'
import type { StateStore } from '../journal/state-store.ts'
import { idIn, matches, newSecret } from './secrets.ts'

export type Participation = 'open' | 'invited'

const PREFIX = 'invite/'
const MAX_INVITES = 1000
/** Volunteers of one invite: each is an entry of its row. */
const MAX_VOLUNTEERS_EACH = 10_000

interface KeptInvite {
  readonly view: Omit<InviteView, 'used'>
  readonly hash: string
  readonly volunteers: readonly VolunteerId[]
}

/** What lets a volunteer in. */
export interface Admission {
  /** id of its invite; undefined: every volunteer is let in */
  readonly invite?: string
  /** the only job that it is given */
  readonly job?: JobId
}

export interface Arrival {
  readonly volunteer: VolunteerId
  readonly code: string | undefined
  /** of its socket: an IPv4 address, or an IPv6 /64 */
  readonly address: string
}

export interface InviteBookParts {
  readonly clock: CoordinatorClock
  readonly store: StateStore
  readonly participation: Participation
  /** volunteers of this invite have to go */
  readonly onRevoked: (id: string) => void
}

export class InviteBook {
  readonly #parts: InviteBookParts
  readonly #guesses: Guesses
  readonly #invites = new Map<string, KeptInvite>()
  readonly #writing = new SerialQueue()
  /** ids that are being written, or wait for it */
  readonly #unwritten = new Set<string>()

  constructor(parts: InviteBookParts) {
    this.#parts = parts
    this.#guesses = new Guesses(parts.clock)
  }

  /** @throws GridError 'disk-failed' */
  async start(): Promise<void> {
    for (const { value } of await this.#parts.store.values(PREFIX)) {
      const invite = JSON.parse(value) as KeptInvite // written by #keep
      this.#invites.set(invite.view.id, invite)
    }
  }

  /** Another coordinator of the same store may have made, used or revoked some. @throws GridError 'disk-failed' */
  async reload(): Promise<void> {
    await this.#writing.run(async () => {
      const known = new Set(this.#invites.keys())
      const kept = await this.#parts.store.values(PREFIX)
      const written = new Map(
        kept.map(({ value }) => {
          const invite = JSON.parse(value) as KeptInvite // written by #keep
          return [invite.view.id, invite]
        }),
      )
      for (const id of known)
        if (!written.has(id) && !this.#unwritten.has(id) && this.#invites.delete(id)) this.#parts.onRevoked(id)
      for (const [id, invite] of written) {
        const own = this.#invites.get(id)
        if (known.has(id) && own === undefined) continue // revoked here meanwhile
        this.#invites.set(id, withUses(invite, own?.volunteers ?? []))
      }
    })
  }

  /**
   * Lets a volunteer in, whose key is proven. A first use is durable when the promise resolves.
   * @throws GridError 'invite-required', 'rate-exceeded' after many wrong codes of this address, 'disk-failed'
   */
  admit({ volunteer, code, address }: Arrival): Admission | Promise<Admission> {
    if (this.#parts.participation === 'open') return {}
    this.#guesses.requireLeisure(address)
    if (code === undefined) throw refusal('got none')
    const invite = this.#invites.get(idIn(code) ?? '')
    if (invite === undefined || !matches(code, invite.hash)) {
      this.#guesses.count(address)
      throw refusal('got a wrong or revoked one')
    }
    const { id, job, uses, expiresAt } = invite.view
    const admission = job === null ? { invite: id } : { invite: id, job }
    if (invite.volunteers.includes(volunteer)) return admission
    if (expiresAt !== null && this.#parts.clock.wallTime() >= expiresAt) throw refusal('got one that has expired')
    if (invite.volunteers.length >= (uses ?? MAX_VOLUNTEERS_EACH)) throw refusal('got one that others have used up')
    return this.#keep({ ...invite, volunteers: [...invite.volunteers, volunteer] }).then(() => admission)
  }

  /** The code itself is in no later answer. Durable when it resolves. @throws GridError 'usage', 'disk-failed' */
  async create(asked: {
    readonly uses?: number | undefined
    readonly expiresAt?: number | undefined
    readonly job?: JobId | undefined
  }): Promise<{ readonly code: string; readonly view: InviteView }> {
    const at = this.#parts.clock.wallTime()
    if (this.#invites.size >= MAX_INVITES)
      throw new GridError('usage', `expected at most ${MAX_INVITES} invites, got one more; revoke those that are over`)
    if (asked.expiresAt !== undefined && asked.expiresAt <= at)
      throw new GridError('usage', 'expected `expiresAt` in the future, got a moment in the past; choose a later one')
    const { id, text, hash } = newSecret('i')
    const { uses = null, expiresAt = null, job = null } = asked
    const kept: KeptInvite = { view: { id, createdAt: at, expiresAt, uses, job }, hash, volunteers: [] }
    await this.#keep(kept)
    return { code: text, view: viewOf(kept) }
  }

  list(): readonly InviteView[] {
    return [...this.#invites.values()].map(viewOf)
  }

  /** Good for nothing at once, and the volunteers that came by it leave; false: there is no such invite. */
  async revoke(id: string): Promise<boolean> {
    if (!this.#invites.delete(id)) return false
    this.#parts.onRevoked(id)
    await this.#writing.run(() => this.#parts.store.remove(PREFIX + id))
    return true
  }

  /** Counted at once, so that two who come together are not both the last one. */
  async #keep(invite: KeptInvite): Promise<void> {
    const { id } = invite.view
    const before = this.#invites.get(id)
    this.#invites.set(id, invite)
    this.#unwritten.add(id)
    try {
      // One write after the other, each with all uses by then: the last one on the disk is the newest.
      await this.#writing.run(async () => {
        const written = await this.#parts.store.get(PREFIX + id)
        const others = written === undefined ? [] : (JSON.parse(written) as KeptInvite).volunteers
        const now = withUses(this.#invites.get(id) ?? invite, others)
        await this.#parts.store.put(PREFIX + id, JSON.stringify(now))
      })
    } catch (error) {
      this.#takeBack(id, before, invite)
      throw error
    } finally {
      this.#unwritten.delete(id)
    }
    if (this.#invites.has(id)) return
    await this.#writing.run(() => this.#parts.store.remove(PREFIX + id)) // revoked meanwhile
    throw refusal('got a wrong or revoked one')
  }

  /** A use that the disk did not take is none, whatever was counted since. */
  #takeBack(id: string, before: KeptInvite | undefined, failed: KeptInvite): void {
    const now = this.#invites.get(id)
    if (before === undefined || now === undefined) return void this.#invites.delete(id)
    const last = failed.volunteers.at(-1)
    this.#invites.set(id, { ...now, volunteers: now.volunteers.filter((volunteer) => volunteer !== last) })
  }
}

/** Volunteers that another coordinator let in count, too. */
function withUses(invite: KeptInvite, others: readonly VolunteerId[]): KeptInvite {
  return { ...invite, volunteers: [...new Set([...others, ...invite.volunteers])] }
}

function viewOf({ view, volunteers }: KeptInvite): InviteView {
  return { ...view, used: volunteers.length }
}

function refusal(found: string): GridError {
  return new GridError(
    'invite-required',
    `expected a valid invite of this coordinator, ${found}; ask its owner for an invite link`,
  )
}
