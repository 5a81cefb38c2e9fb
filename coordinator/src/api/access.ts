// Who asks, and what of a job belongs to them. The holder of a token sees the jobs that it submitted, an admin all. A
// volunteer's session sees what belongs to jobs that it was offered; every caller what belongs to a job that says
// `public`. What does not exist and what belongs to others is answered alike.
import { GridError, type JobId, type MemberId, type TokenScope, type Sha256 } from '@starling-grid/protocol'
import type { FastifyRequest } from 'fastify'
import { hashOf, matches } from '../access/secrets.ts'
import { allows, type Holder, owns, type TokenBook } from '../access/tokens.ts'
import type { CoordinatorClock } from '../clock.ts'
import type { RunHost } from '../host/run-host.ts'
import type { Reader } from '../host/run-view.ts'
import type { Runs } from '../jobs/runs.ts'
import { addressOf } from './addresses.ts'
import { type HttpRefusal, notFound } from './errors.ts'
import { Guesses } from './guesses.ts'

/**
 * What a session's token, or one that this program made for an owner, looks like: 256 random bits cannot be guessed.
 */
const RANDOM_TOKEN = /^(t[0-9a-f]{16}\.)?[0-9a-f]{64}$/
/** Of a session, or of an owner whose token was made at the first start. */
const SESSION_TOKEN = /^[0-9a-f]{64}$/

/** Who is connected, by the token of its session. */
export interface SessionBook {
  authenticate(token: string): MemberId | undefined
  /** it was offered this job */
  takesPart(member: MemberId, job: JobId): boolean
  /** it goes between two steps, or at once where it is in no run */
  leave(member: MemberId): void
}

export interface AccessParts {
  readonly clock: CoordinatorClock
  readonly tokens: TokenBook
  readonly runs: Runs
  readonly sessions: SessionBook
}

export class Access {
  readonly #parts: AccessParts
  readonly #guesses: Guesses

  constructor(parts: AccessParts) {
    this.#parts = parts
    this.#guesses = new Guesses(parts.clock)
  }

  /**
   * The caller, who holds a token that allows so much.
   * @throws GridError 'token-required', 'scope-missing', 'rate-exceeded' after many wrong ones from this address
   */
  requireOwner(request: FastifyRequest, scope: TokenScope = 'admin'): Holder {
    // A session's token is no guess at an owner's.
    const holder = this.#isMember(request) ? undefined : this.holder(bearer(request), addressOf(request))
    if (holder === undefined)
      throw new GridError(
        'token-required',
        'expected the token of an owner, got none or a wrong one; send it as Authorization: Bearer TOKEN',
      )
    if (!allows(holder, scope))
      throw new GridError(
        'scope-missing',
        `expected a token of scope ${scope}, got one of ${holder.scopes.join(', ')}; ask an admin for another`,
      )
    return holder
  }

  /** Whose token this is; a wrong one counts against the address. @throws GridError 'rate-exceeded' */
  holder(given: string, address: string): Holder | undefined {
    this.#guesses.requireLeisure(address)
    const holder = this.#parts.tokens.holder(given)
    if (holder === undefined && given !== '') this.#guesses.count(address)
    return holder
  }

  /** `close` is called when the holder's token is over. Call what comes back when the thing closed by itself. */
  holdOpen(holder: Holder, close: () => void): () => void {
    return this.#parts.tokens.holdOpen(holder, close)
  }

  /** The member of a job whose session asks. @throws GridError 'session-unknown', HttpRefusal 404 */
  requireMember(request: FastifyRequest, job: string): { readonly member: MemberId; readonly run: RunHost } {
    const member = this.requireSession(request)
    const run = this.#parts.runs.find(job)
    if (run === undefined || !this.#parts.sessions.takesPart(member, run.job.id)) throw noSuchJob()
    return { member, run }
  }

  /**
   * A run that belongs to the holder of a token with this scope.
   * @throws HttpRefusal 404 also for a run of another; GridError as requireOwner and requireRun
   */
  requireOwnRun(request: FastifyRequest, job: string, scope: TokenScope): RunHost {
    const holder = this.requireOwner(request, scope)
    if (allows(holder, 'admin')) return this.requireRun(job)
    const run = this.#parts.runs.find(job)
    if (run === undefined || !owns(holder, run.job.ownedBy)) throw noSuchJob()
    return run
  }

  /** Whether a job belongs to the caller's token. */
  ownsJob(request: FastifyRequest, job: string): boolean {
    const run = this.#parts.runs.find(job)
    const holder = this.#holderOf(request)
    return run !== undefined && holder !== undefined && owns(holder, run.job.ownedBy)
  }

  /** For an admin. @throws HttpRefusal 404; GridError 'journal-damaged' */
  requireRun(job: string): RunHost {
    const { runs } = this.#parts
    const damaged = runs.damaged().find(({ id }) => id === job)
    if (damaged !== undefined) throw new GridError(damaged.code, damaged.message)
    const run = runs.find(job)
    if (run === undefined) throw noSuchJob()
    return run
  }

  /**
   * A job that belongs to the holder of a token with this scope; for an admin also one that cannot be opened.
   * @throws HttpRefusal 404 also for a job of another; GridError as requireOwner
   */
  requireOwnJob(request: FastifyRequest, job: string, scope: TokenScope): JobId {
    const { runs } = this.#parts
    const holder = this.requireOwner(request, scope)
    const damaged = allows(holder, 'admin') ? runs.damaged().find(({ id }) => id === job) : undefined
    return damaged?.id ?? this.requireOwnRun(request, job, scope).job.id
  }

  /** @throws GridError 'session-unknown' */
  requireSession(request: FastifyRequest): MemberId {
    const member = this.#parts.sessions.authenticate(bearer(request))
    if (member === undefined)
      throw new GridError(
        'session-unknown',
        'expected the session token of a volunteer, got none or an old one; send it as Authorization: Bearer TOKEN',
      )
    return member
  }

  /** The member whose session asks goes as if it had said so on its socket. @throws GridError 'session-unknown' */
  leave(request: FastifyRequest): void {
    this.#parts.sessions.leave(this.requireSession(request))
  }

  /** A run that this caller may read. @throws GridError 'token-required', HttpRefusal 404 */
  requireReader(request: FastifyRequest, job: string): { readonly run: RunHost; readonly reader: Reader } {
    const run = this.#parts.runs.find(job)
    const reader = run === undefined ? 'stranger' : this.readerOf(request, run)
    if (run !== undefined && reader !== 'stranger') return { run, reader }
    const holder = this.#holderOf(request)
    if (holder !== undefined && allows(holder, 'admin')) return { run: this.requireRun(job), reader: 'owner' }
    if (holder !== undefined || this.#isMember(request)) throw noSuchJob()
    throw new GridError(
      'token-required',
      'expected a public job, got a private or unknown one; send the token of its owner, ' +
        'or the session token of a volunteer of this job',
    )
  }

  /** Whether the caller holds a good token, of an owner or of a session. */
  isKnown(request: FastifyRequest): boolean {
    return this.#isMember(request) || this.#holderOf(request) !== undefined
  }

  isAdmin(request: FastifyRequest): boolean {
    const holder = this.#holderOf(request)
    return holder !== undefined && allows(holder, 'admin')
  }

  readerOf(request: FastifyRequest, run: RunHost): Reader {
    const holder = this.#holderOf(request)
    if (holder !== undefined) return readerWith(holder, run)
    const member = this.#parts.sessions.authenticate(bearer(request))
    const takesPart = member !== undefined && this.#parts.sessions.takesPart(member, run.job.id)
    return takesPart ? 'member' : readerWith(undefined, run)
  }

  /**
   * Whether a shard belongs to a job that this caller may read; and to a public one, so that any cache may keep it. A
   * volunteer whose token is of a session before a restart is told so. It would take any other refusal for a shard that
   * is gone. @throws GridError 'session-unknown'
   */
  shardFor(request: FastifyRequest, name: Sha256): 'public' | 'private' | undefined {
    const jobs = this.#parts.runs.jobsOfShard(name)
    if (jobs.some(({ job }) => job.spec.public === true)) return 'public'
    if (jobs.some((run) => this.readerOf(request, run) !== 'stranger')) return 'private'
    if (SESSION_TOKEN.test(bearer(request)) && this.#holderOf(request) === undefined) this.requireSession(request)
    return undefined
  }

  #holderOf(request: FastifyRequest): Holder | undefined {
    const token = bearer(request)
    if (token === '' || this.#isMember(request)) return undefined
    // Volunteers come back after a restart with tokens that are worth nothing: that is no guess.
    return RANDOM_TOKEN.test(token) ? this.#parts.tokens.holder(token) : this.holder(token, addressOf(request))
  }

  #isMember(request: FastifyRequest): boolean {
    return this.#parts.sessions.authenticate(bearer(request)) !== undefined
  }
}

/** The token that a request brings; '' for none. */
export function bearer({ headers: { authorization = '' } }: FastifyRequest): string {
  return authorization.startsWith('Bearer ') ? authorization.slice('Bearer '.length) : ''
}

function noSuchJob(): HttpRefusal {
  return notFound('there is no such job')
}

/** In a time that tells nothing of either. */
export function equal(a: string, b: string): boolean {
  return matches(a, hashOf(b))
}

/** How much of a run the holder of a token sees; undefined: no token. */
export function readerWith(holder: Holder | undefined, { job }: RunHost): Reader {
  if (holder !== undefined && owns(holder, job.ownedBy)) return 'owner'
  return job.spec.public === true ? 'member' : 'stranger'
}
