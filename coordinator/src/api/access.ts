// Who asks, and what of a job belongs to them: the owner sees all; a volunteer's session what belongs to jobs that it
// was offered. Anybody what belongs to a job that says `public`. What does not exist and what belongs to others is
// answered alike.
import { createHash, timingSafeEqual } from 'node:crypto'
import { GridError, type JobId, type MemberId, type Sha256 } from '@starling-grid/protocol'
import type { FastifyRequest } from 'fastify'
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
const RANDOM_TOKEN = /^[0-9a-f]{64}$/

/** Who is connected, by the token of its session. */
export interface SessionBook {
  authenticate(token: string): MemberId | undefined
  /** it was offered this job */
  takesPart(member: MemberId, job: JobId): boolean
}

export interface AccessParts {
  readonly clock: CoordinatorClock
  /** the owner's */
  readonly token: string
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

  /** @throws GridError 'token-required', 'rate-exceeded' after many wrong ones from this address */
  requireOwner(request: FastifyRequest): void {
    // A session's token is no guess at the owner's.
    if (this.#isMember(request) || !this.isToken(bearer(request), addressOf(request)))
      throw new GridError(
        'token-required',
        'expected the owner token, got none or a wrong one; send it as Authorization: Bearer TOKEN',
      )
  }

  /** Whether this is the owner's token; a wrong one counts against the address. @throws GridError 'rate-exceeded' */
  isToken(given: string, address: string): boolean {
    this.#guesses.requireLeisure(address)
    if (equal(given, this.#parts.token)) return true
    if (given !== '') this.#guesses.count(address)
    return false
  }

  /** The member of a job whose session asks. @throws GridError 'session-unknown', HttpRefusal 404 */
  requireMember(request: FastifyRequest, job: string): { readonly member: MemberId; readonly run: RunHost } {
    const member = this.requireSession(request)
    const run = this.#parts.runs.find(job)
    if (run === undefined || !this.#parts.sessions.takesPart(member, run.job.id)) throw noSuchJob()
    return { member, run }
  }

  /** For the owner. @throws HttpRefusal 404; GridError 'journal-damaged' */
  requireRun(job: string): RunHost {
    const { runs } = this.#parts
    const damaged = runs.damaged().find(({ id }) => id === job)
    if (damaged !== undefined) throw new GridError(damaged.code, damaged.message)
    const run = runs.find(job)
    if (run === undefined) throw noSuchJob()
    return run
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

  /** A run that this caller may read. @throws GridError 'token-required', HttpRefusal 404 */
  requireReader(request: FastifyRequest, job: string): { readonly run: RunHost; readonly reader: Reader } {
    const run = this.#parts.runs.find(job)
    const reader = run === undefined ? this.#readerOf(request, undefined) : this.readerOf(request, run)
    if (run !== undefined && reader !== 'stranger') return { run, reader }
    if (reader === 'owner') return { run: this.requireRun(job), reader }
    if (reader !== 'stranger' || this.#isMember(request)) throw noSuchJob()
    throw new GridError(
      'token-required',
      'expected a public job, got a private or unknown one; send the owner token, ' +
        'or the session token of a volunteer of this job',
    )
  }

  isOwner(request: FastifyRequest): boolean {
    return this.#readerOf(request, undefined) === 'owner'
  }

  readerOf(request: FastifyRequest, { job }: RunHost): Reader {
    const reader = this.#readerOf(request, job.id)
    return reader === 'stranger' && job.spec.public === true ? 'member' : reader
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
    if (RANDOM_TOKEN.test(bearer(request)) && !this.isOwner(request)) this.requireSession(request)
    return undefined
  }

  #readerOf(request: FastifyRequest, job: JobId | undefined): Reader {
    const token = bearer(request)
    if (token === '') return 'stranger'
    const member = this.#parts.sessions.authenticate(token)
    if (member !== undefined)
      return job !== undefined && this.#parts.sessions.takesPart(member, job) ? 'member' : 'stranger'
    // Volunteers come back after a restart with tokens that are worth nothing: that is no guess.
    if (RANDOM_TOKEN.test(token)) return equal(token, this.#parts.token) ? 'owner' : 'stranger'
    return this.isToken(token, addressOf(request)) ? 'owner' : 'stranger'
  }

  #isMember(request: FastifyRequest): boolean {
    return this.#parts.sessions.authenticate(bearer(request)) !== undefined
  }
}

function bearer({ headers: { authorization = '' } }: FastifyRequest): string {
  return authorization.startsWith('Bearer ') ? authorization.slice('Bearer '.length) : ''
}

function noSuchJob(): HttpRefusal {
  return notFound('there is no such job')
}

function equal(a: string, b: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(a), digest(b))
}
