// What a volunteer shows of itself, derived from its session; sent on change, at most ten times a second.
import {
  describeError,
  isGridError,
  type JobId,
  type JobTerms,
  plainText,
  type Clock,
  type CancelTimer,
} from '@starling-grid/protocol'
import type { VolunteerPhase, VolunteerStatus } from './host.ts'
import type { JobSession } from './job-session.ts'
import type { MemberCore } from './member/member-state.ts'

/** ms between two statuses */
const INTERVAL_MS = 100

const NOTHING: VolunteerStatus = {
  phase: 'connecting',
  detail: 'looking for the coordinator',
  job: null,
  adapter: null,
  mode: null,
  ring: null,
  relayedLinks: 0,
  tcpLinks: 0,
  samplesPerSecond: 0,
  samplesCommitted: 0,
  version: 0,
  loss: null,
  bytesSent: 0,
  bytesReceived: 0,
  error: null,
}

/** Phases in which no work is shown. */
const ENDED: ReadonlySet<VolunteerPhase> = new Set(['finished', 'stopped', 'connecting', 'failed'])

export class StatusReporter {
  readonly #show: (status: VolunteerStatus) => void
  #status = NOTHING
  #shownAt = Number.NEGATIVE_INFINITY
  readonly #clock: Clock
  #cancelPending: CancelTimer | undefined
  #jobId: JobId | undefined
  /** of mine in this job, by a session before the present one */
  #earlierSamples = 0
  #pushedSamples = 0
  #pushedLoss: number | null = null
  /** whose work changed since its state was derived */
  #changed: JobSession | undefined

  constructor(show: (status: VolunteerStatus) => void, clock: Clock) {
    this.#clock = clock
    this.#show = show
  }

  get phase(): VolunteerPhase {
    this.#derive()
    return this.#status.phase
  }

  joined(): void {
    this.#set({ phase: 'waiting', detail: 'joined', error: null })
  }
  waiting(detail: string): void {
    this.#set({ phase: 'waiting', detail })
  }
  away(why: string, retryMs: number): void {
    this.#set({ phase: 'connecting', detail: `${why}; trying again in ${(retryMs / 1000).toFixed(1)} s` })
  }
  preparing({ id, name, owner, purpose }: JobTerms): void {
    this.#derive()
    this.#earlierSamples = id === this.#jobId ? this.#status.samplesCommitted : 0
    this.#jobId = id
    this.#pushedSamples = 0
    this.#pushedLoss = null
    const job = { name: plainText(name), owner: plainText(owner), purpose: plainText(purpose) }
    this.#set({ phase: 'preparing', detail: 'fetching data, planning the model, measuring speed', job })
  }
  preparingBase(detail: string): void {
    if (this.#status.phase === 'preparing') this.#set({ detail: plainText(detail) })
  }
  preparingAgain(why: string, waitMs: number): void {
    this.#set({ phase: 'preparing', detail: `${why}; trying again in ${(waitMs / 1000).toFixed(1)} s` })
  }
  prepared(session: JobSession): void {
    const { compute, baseFrom } = session
    const { executor, samplesPerSecond } = compute
    this.#set({ adapter: executor.adapter, samplesPerSecond, ...(baseFrom === undefined ? {} : { base: baseFrom }) })
  }
  pushed(samples: number, loss: number): void {
    this.#pushedSamples += samples
    this.#pushedLoss = loss
  }
  /** Not fatal: shown, and the work goes on. */
  refused(code: string, message: string): void {
    this.#set({ detail: `refused: ${message} (${code})` })
  }
  finished(reason: string): void {
    this.#set({ phase: 'finished', detail: reason })
  }
  stopped(): void {
    this.#set({ phase: 'stopped', detail: 'left; unfinished blocks went back' })
  }
  failed(error: unknown): void {
    const code = isGridError(error) ? error.code : 'internal'
    this.#set({
      phase: 'failed',
      detail: describeError(error),
      error: { code, message: plainText(describeError(error)) },
    })
  }

  /** The work changed. It does so with every frame: what is shown of it is derived when it is shown. */
  working(session: JobSession): void {
    if (ENDED.has(this.#status.phase)) return
    this.#changed = session
    this.#showSoon()
  }

  #derive(): void {
    const session = this.#changed
    this.#changed = undefined
    if (session === undefined) return
    const { core, compute, runner } = session
    const { phase, detail } = phaseOf(session)
    const last = core.tail.at(-1)
    const heldLoss = last === undefined ? this.#status.loss : last.lossSum / Math.max(last.targets, 1)
    this.#status = {
      ...this.#status,
      phase,
      detail: plainText(detail),
      mode: modeOf(core) ?? this.#status.mode,
      ring: core.ring === undefined ? null : { rank: core.ring.rank, size: core.ring.members.length },
      relayedLinks: core.ring === undefined ? 0 : runner.links.relayedLinks,
      tcpLinks: core.ring === undefined ? 0 : runner.links.over('tcp').length,
      samplesPerSecond: compute.samplesPerSecond,
      samplesCommitted: this.#earlierSamples + runner.samplesHeld + this.#pushedSamples,
      version: core.version?.v ?? 0,
      loss: core.asyncEpoch === undefined ? heldLoss : this.#pushedLoss,
      bytesSent: runner.links.bytesSent,
      bytesReceived: runner.links.bytesReceived,
    }
  }

  /** Texts may come from the coordinator: in a terminal they are lines without control characters. */
  #set(change: Partial<VolunteerStatus>): void {
    if (this.#status.phase === 'failed') return // it has ended: what was under way says nothing more
    this.#derive()
    const text = change.detail === undefined ? {} : { detail: plainText(change.detail) }
    this.#status = { ...this.#status, ...change, ...text }
    this.#showSoon()
  }

  #showSoon(): void {
    const wait = this.#shownAt + INTERVAL_MS - this.#clock.now()
    if (wait <= 0) return this.#flush()
    this.#cancelPending ??= this.#clock.timer(wait, () => this.#flush())
  }

  #flush(): void {
    this.#cancelPending?.()
    this.#cancelPending = undefined
    this.#shownAt = this.#clock.now()
    this.#derive()
    this.#show(this.#status)
  }
}

function phaseOf({ core, activity }: JobSession): { readonly phase: VolunteerPhase; readonly detail: string } {
  if (activity !== undefined) return activity
  const { ring } = core
  if (core.asyncEpoch !== undefined) return { phase: 'waiting', detail: 'waiting for work from the parameter server' }
  if (core.learning !== undefined)
    return { phase: 'catching-up', detail: `fetching version ${core.learning.version.v} while the others go on` }
  if (ring === undefined) return { phase: 'waiting', detail: 'agreeing on a version with the others' }
  switch (ring.stage) {
    case 'forming':
      return { phase: 'catching-up', detail: `reaching version ${ring.target.v} and linking to neighbours` }
    case 'ready':
      return { phase: 'waiting', detail: 'ready; waiting for the other members' }
    case 'broken':
      return { phase: 'waiting', detail: 'a reduce failed; waiting for the next ballot' }
    case 'running':
      return runningPhase(ring.flight)
    default:
      return ring.stage satisfies never
  }
}

function runningPhase(flight: { readonly step: number; readonly stage: 'computing' | 'reducing' } | undefined): {
  readonly phase: VolunteerPhase
  readonly detail: string
} {
  if (flight === undefined) return { phase: 'waiting', detail: 'waiting for the next plan' }
  return flight.stage === 'computing'
    ? { phase: 'computing', detail: `step ${flight.step}` }
    : { phase: 'exchanging', detail: `step ${flight.step}` }
}

/** undefined: neither in a generation nor in async mode at present */
function modeOf({ asyncEpoch, ring }: MemberCore): VolunteerStatus['mode'] | undefined {
  if (asyncEpoch !== undefined) return 'async'
  if (ring === undefined) return undefined
  return ring.kind === 'round' ? 'local' : 'ring'
}
