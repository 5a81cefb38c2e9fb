// Carries out who works for which job (schedule.ts): looks at jobs and volunteers, and asks volunteers to move. Decides
// nothing. All coordinators share volunteers this way, also with one job.
import {
  type CancelTimer,
  type JobId,
  type MemberId,
  requirementsOf,
  requiresText,
  type WaitView,
} from '@starling-grid/protocol'
import type { CoordinatorClock } from '../clock.ts'
import { MeasuredSpeeds } from '../host/measured-speeds.ts'
import type { RunHost } from '../host/run-host.ts'
import { criticalCrowd } from '../run/async/crowd.ts'
import { fits, type JobMove, lacks, type Lender, schedule, type SharingJob } from './schedule.ts'

/** ms between looks, beside those that a change asks for */
const LOOK_MS = 1000
/** ms after the start of a coordinator in which the volunteers of its jobs come back */
const RETURN_MS = 60_000
/** ms in which a volunteer that was sent away arrives, and its new coordinator says so */
const ARRIVAL_MS = 5000
/** Other jobs that a job which waits is told of. */
const MOST_ELSEWHERE = 4

/** A volunteer with an open session. */
export interface VolunteerSeat extends Lender {
  /** the run that it is still a member of while it moves to another */
  readonly leaves: JobId | undefined
  /** this session was offered a job: a volunteer that comes back to a paused one was not */
  readonly isOffered: boolean
  /** its invite names the one job that it may be given */
  readonly isBound?: boolean
}

/** Sessions of volunteers, as far as jobs share them. */
export interface VolunteerSeats {
  seats(): Iterable<VolunteerSeat>
  seat(volunteer: MemberId): VolunteerSeat | undefined
  /** It is offered this job: at once, or when its present run has ended its step without it. */
  move(volunteer: MemberId, to: RunHost): void
  /** It is sent to the coordinator of this job, at the same moment. */
  sendAway(volunteer: MemberId, to: Away): void
  /** Another coordinator has this run: its volunteers go there. */
  runMoved(run: RunHost): void
}

/** A job of another coordinator. */
export interface Away {
  readonly job: JobId
  /** of its coordinator */
  readonly url: string
}

/** What other coordinators say of their jobs and volunteers. */
export interface Elsewhere {
  readonly jobs: readonly (SharingJob & { readonly url: string })[]
  readonly lenders: readonly Lender[]
}

/** Where a volunteer goes. */
export type Destination = { readonly run: RunHost } | { readonly away: Away }

export interface SharingParts {
  readonly clock: CoordinatorClock
  readonly seats: VolunteerSeats
  readonly runs: () => readonly RunHost[]
  /** absent: there are no others */
  readonly elsewhere?: () => Elsewhere
}

export class Sharing {
  readonly #parts: SharingParts
  readonly #speeds = new Map<JobId, MeasuredSpeeds>()
  /** volunteers on their way to other coordinators */
  readonly #sent = new Map<MemberId, { readonly lender: Lender; readonly at: number }>()
  #startedAt = 0
  #stopLooking: CancelTimer = () => undefined

  constructor(parts: SharingParts) {
    this.#parts = parts
  }

  start(): void {
    this.#startedAt = this.#parts.clock.awake()
    this.#stopLooking = this.#parts.clock.every(LOOK_MS, () => this.look())
  }

  stop(): void {
    this.#stopLooking()
  }

  look(): void {
    const open = this.#open()
    this.#measure(open)
    const seats = [...this.#parts.seats.seats()]
    const only = this.#onlyJob(open)
    const moves = this.#moves(open, only === undefined ? seats : seats.filter(({ job }) => job !== only))
    for (const { volunteer, from, to, reason } of moves) {
      const place = this.#placeOf(to, open)
      if (place === undefined) continue
      if (from !== undefined) open.get(from)?.noteMove(volunteer, `goes to another job: ${reason}`)
      if ('run' in place) this.#parts.seats.move(volunteer, place.run)
      else this.#send(volunteer, place.away)
    }
    const moved = new Set(moves.map(({ volunteer }) => volunteer))
    for (const seat of seats) if (!seat.isOffered && !moved.has(seat.id)) this.#offerOwn(seat, open)
  }

  /** Its job was paused when it came back, and goes on now. */
  #offerOwn(seat: VolunteerSeat, open: ReadonlyMap<JobId, RunHost>): void {
    const run = seat.job === undefined ? undefined : open.get(seat.job)
    if (run === undefined) return
    if (fits({ id: run.job.id, ...adapterOf(run) }, seat)) this.#parts.seats.move(seat.id, run)
  }

  /** Where a volunteer goes that said hello; others move at the next look. */
  placeFor(volunteer: MemberId): Destination | undefined {
    const open = this.#open()
    const seat = this.#parts.seats.seat(volunteer)
    if (seat === undefined) return undefined
    const present = this.#onlyJob(open) === undefined ? this.#parts.seats.seats() : [seat]
    const move = this.#moves(open, present).find(({ volunteer: id }) => id === volunteer)
    const job = move?.to ?? seat.job
    const place = job === undefined ? undefined : this.#placeOf(job, open)
    if (place !== undefined && 'away' in place) this.#noteSent(seat, place.away)
    return place
  }

  /** All go to a job that is alone and takes all: a thousand volunteers are not compared with each other. */
  #onlyJob(open: ReadonlyMap<JobId, RunHost>): JobId | undefined {
    const [run] = open.values()
    const isAlone = open.size === 1 && run?.job.spec.volunteers?.max === undefined && this.#elsewhere.jobs.length === 0
    return isAlone ? run?.job.id : undefined
  }

  #placeOf(job: JobId, open: ReadonlyMap<JobId, RunHost>): Destination | undefined {
    const run = open.get(job)
    if (run !== undefined) return { run }
    const url = this.#elsewhere.jobs.find(({ id }) => id === job)?.url
    return url === undefined ? undefined : { away: { job, url } }
  }

  #send(volunteer: MemberId, to: Away): void {
    const seat = this.#parts.seats.seat(volunteer)
    if (seat === undefined) return
    this.#noteSent(seat, to)
    this.#parts.seats.sendAway(volunteer, to)
  }

  /** It counts for that job until its coordinator says so. */
  #noteSent(seat: Lender, { job }: Away): void {
    const at = this.#parts.clock.awake()
    this.#sent.set(seat.id, { lender: { ...seat, job, since: at }, at })
  }

  /** A volunteer works for it, or was offered it. */
  isLentTo(job: JobId): boolean {
    return [...this.#parts.seats.seats()].some((seat) => seat.job === job)
  }

  /** What other coordinators are told of the open jobs here, and of those who work for them. */
  shared(): { readonly jobs: readonly SharingJob[]; readonly seats: readonly Lender[] } {
    const seats = [...this.#parts.seats.seats()]
    return { jobs: this.#sharingJobs(this.#open(), seats), seats: seats.map((seat) => this.#lender(seat)) }
  }

  get #elsewhere(): Elsewhere {
    return this.#parts.elsewhere?.() ?? NOWHERE
  }

  /** Why this run waits for volunteers; null: it has what it needs. */
  waitOf(run: RunHost): WaitView | null {
    if (run.finished || run.paused) return null
    const { id, spec, config } = run.job
    const needs = { id, ...adapterOf(run) }
    let missing = config.minVolunteers
    for (const seat of this.#parts.seats.seats()) {
      if (missing <= 0) break // a crowd is not counted to its end
      // one that declined its job is still placed there while no other takes it
      if (seat.job === id && fits(needs, seat)) missing--
    }
    if (missing <= 0) return null
    const seats = [...this.#parts.seats.seats()]
    const counts = countsOf(seats)
    const unfit = seats.filter((seat) => seat.declines.has(id) || lacks(needs, seat)).length
    const text = requiresText(requirementsOf(spec))
    const elsewhere = [...this.#open().values()]
      .filter((other) => other !== run && (counts.get(other.job.id) ?? 0) > 0)
      .map(({ job: { id, spec, ownedBy } }) => ({
        job: spec.public === true || ownedBy === run.job.ownedBy ? spec.name : null,
        priority: spec.priority ?? 0,
        volunteers: counts.get(id) ?? 0,
      }))
      .sort((a, b) => b.volunteers - a.volunteers)
    return {
      missing,
      ...(unfit > 0 && text !== undefined ? { unfit: { volunteers: unfit, requires: text } } : {}),
      elsewhere: elsewhere.slice(0, MOST_ELSEWHERE),
    }
  }

  #open(): Map<JobId, RunHost> {
    const open = this.#parts.runs().filter((run) => !run.finished && !run.paused)
    return new Map(open.map((run) => [run.job.id, run]))
  }

  #moves(open: ReadonlyMap<JobId, RunHost>, present: Iterable<VolunteerSeat>): JobMove[] {
    const now = this.#parts.clock.awake()
    const seated = [...present]
    if (seated.length === 0 && this.#elsewhere.lenders.length === 0) return []
    const parking = new Set(this.#parts.runs().flatMap((run) => (run.isParking ? [run.job.id] : [])))
    const seats = seated.filter(({ job }) => job === undefined || !parking.has(job))
    const own = new Set(seats.map(({ id }) => id))
    const elsewhere = this.#elsewhere
    const arrived = new Set(elsewhere.lenders.map(({ id }) => id))
    const inert = new Map([...open.values()].map((run) => [run.job.id, new Set(run.inert)]))
    const lenders = [
      ...seats.map((seat) => ({
        ...this.#lender(seat),
        isInert: seat.job !== undefined && inert.get(seat.job)?.has(seat.id) === true,
      })),
      ...elsewhere.lenders.filter(({ id }) => !own.has(id)),
      ...this.#underWay(now).filter(({ id }) => !own.has(id) && !arrived.has(id)),
    ]
    // All coordinators decide about all volunteers, and each moves its own.
    const others = elsewhere.jobs.filter(({ id }) => !open.has(id)) // one that came here a moment ago is here
    return schedule([...this.#sharingJobs(open, seats), ...others], lenders, now).filter(({ volunteer }) =>
      own.has(volunteer),
    )
  }

  #underWay(now: number): Lender[] {
    for (const [id, { at }] of this.#sent) if (now - at > ARRIVAL_MS) this.#sent.delete(id)
    return [...this.#sent.values()].map(({ lender }) => lender)
  }

  #sharingJobs(open: ReadonlyMap<JobId, RunHost>, seats: readonly VolunteerSeat[]): SharingJob[] {
    const leaving = new Set(seats.flatMap(({ leaves }) => leaves ?? []))
    const counts = countsOf(seats)
    const now = this.#parts.clock.awake()
    return [...open.values()].map((run) => this.#sharingJob(run, { counts, leaving, now }))
  }

  /** A choice holds as long as its job: later the volunteer takes any, unless its invite names that job. */
  #lender(seat: VolunteerSeat): Lender {
    const isOver = this.#parts.runs().some(({ finished, job: { id } }) => finished && id === seat.chosen)
    return isOver && seat.isBound !== true ? { ...seat, chosen: undefined } : seat
  }

  #sharingJob(
    run: RunHost,
    { counts, leaving, now }: { counts: ReadonlyMap<JobId, number>; leaving: ReadonlySet<JobId>; now: number },
  ): SharingJob {
    const { id, spec, config, submittedAt } = run.job
    // After a restart its members come back one by one.
    const comesBack = run.state.chain.head.v > 0 && now - this.#startedAt < RETURN_MS
    return {
      id,
      priority: spec.priority ?? 0,
      min: config.minVolunteers,
      max: spec.volunteers?.max ?? Number.POSITIVE_INFINITY,
      ...adapterOf(run),
      submittedAt,
      isRunning: (counts.get(id) ?? 0) > 0 && (run.state.phase.type !== 'waiting' || comesBack),
      isReforming: leaving.has(id) || run.isReforming,
      speeds: this.#speeds.get(id)?.byMembers ?? new Map(),
      criticalMembers: criticalCrowd(run.state),
    }
  }

  #measure(open: ReadonlyMap<JobId, RunHost>): void {
    const now = this.#parts.clock.awake()
    for (const id of this.#speeds.keys()) if (!open.has(id)) this.#speeds.delete(id)
    for (const [id, { history, state, isReforming }] of open) {
      const speeds = this.#speeds.get(id) ?? new MeasuredSpeeds()
      this.#speeds.set(id, speeds)
      speeds.note({ members: isReforming ? 0 : state.members.size, steps: history.steps, now })
    }
  }
}

/** What it requires of adapters. */
function adapterOf({ job }: RunHost): Pick<SharingJob, 'realGpu' | 'f16'> {
  const { realGpu = false, f16 = false } = requirementsOf(job.spec)
  return { realGpu, f16 }
}

const NOWHERE: Elsewhere = { jobs: [], lenders: [] }

function countsOf(seats: Iterable<VolunteerSeat>): Map<JobId, number> {
  const counts = new Map<JobId, number>()
  for (const { job } of seats) if (job !== undefined) counts.set(job, (counts.get(job) ?? 0) + 1)
  return counts
}
