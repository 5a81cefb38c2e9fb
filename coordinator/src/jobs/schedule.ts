// Which volunteer takes part in which job, and why it moves. Pure: knows nothing of sockets, runs or clocks.
//
// Elastic as PaddlePaddle EDL: a job starts with its minimum and grows to its maximum while volunteers are there. It
// shrinks to its minimum when another job needs them. In EDL a TrainingJob has `min-instance` and `max-instance`, and
// an autoscaler moves instances from running to waiting jobs. EDL's own example is ten nodes, five of them busy, and a
// job that asks for six: it starts with five at once and grows. Unlike EDL, growth goes where one volunteer more helps
// most: to the largest gain in Σ weight · log speed (proportional fairness, Kelly, 1997).
import type { JobId, MemberId } from '@starling-grid/protocol'

/** A job that is neither finished nor paused. */
export interface SharingJob {
  readonly id: JobId
  /** higher first; one more weighs twice as much */
  readonly priority: number
  /** volunteers that it needs to start, and keeps once it trains */
  readonly min: number
  readonly max: number
  /** only adapters with a GPU behind them */
  readonly realGpu: boolean
  /** only adapters with shader-f16 */
  readonly f16: boolean
  /** ms */
  readonly submittedAt: number
  /** it trains: other jobs leave it its minimum */
  readonly isRunning: boolean
  /** its members agree on the next ring, or one of them leaves: no other is moved away meanwhile */
  readonly isReforming: boolean
  /** members → samples per second that were measured with this many */
  readonly speeds: ReadonlyMap<number, number>
  /**
   * members whose work makes up the noise scale of its gradients: with more, each sample teaches less
   * (run/policy/noise-scale.ts); absent: not measured
   */
  readonly criticalMembers?: number | undefined
}

export interface Lender {
  readonly id: MemberId
  /** that it was given last */
  readonly job: JobId | undefined
  /** ms: when it was given that job */
  readonly since: number
  /** the only job that its owner lends it to */
  readonly chosen: JobId | undefined
  /** jobs that it does not take: its owner's limits, or a device that they need */
  readonly declines: ReadonlySet<JobId>
  /** undefined: not known yet, as with the next */
  readonly realGpu: boolean | undefined
  readonly f16: boolean | undefined
  /** it does nothing in its job: it counts for nothing there, and stays */
  readonly isInert?: boolean
}

export interface JobMove {
  readonly volunteer: MemberId
  readonly from: JobId | undefined
  readonly to: JobId
  /** names no other job: members of one job read it */
  readonly reason: string
}

/** ms that a volunteer stays where it is before another job's growth may take it */
export const STAY_MS = 60_000
/** ms of work that a move costs each of both jobs: a ballot, and a state to fetch */
const MOVE_MS = 15_000
/** ms after which a move must have paid for itself */
const PAYS_WITHIN_MS = 600_000

/**
 * The moves that make the present assignment the wanted one; none when it is. Deterministic. Every volunteer is in one
 * job at most; a running job is never brought below its minimum, and no job above its maximum.
 */
export function schedule(jobs: readonly SharingJob[], lenders: readonly Lender[], now: number): JobMove[] {
  const wanted = new WantedAssignment(jobs, lenders, now)
  wanted.seatChosen()
  wanted.fillMinimums()
  wanted.placeIdle()
  wanted.shiftGrowth()
  return wanted.moves()
}

/** By priority, then the one that waits longest. */
export function inOrder(a: SharingJob, b: SharingJob): number {
  return b.priority - a.priority || a.submittedAt - b.submittedAt || (a.id < b.id ? -1 : 1)
}

/** Whether this volunteer may take part in this job. */
export function fits(job: Pick<SharingJob, 'id' | 'realGpu' | 'f16'>, lender: Lender): boolean {
  const { chosen, declines } = lender
  return (chosen === undefined || chosen === job.id) && !declines.has(job.id) && !lacks(job, lender)
}

/** What the job requires and its adapter is known not to have. */
export function lacks(job: Pick<SharingJob, 'realGpu' | 'f16'>, { realGpu, f16 }: Lender): boolean {
  return (job.realGpu && realGpu === false) || (job.f16 && f16 === false)
}

/**
 * Samples per second with this many members. Where nothing was measured: the slope of the two nearest smaller counts,
 * or in proportion to the nearest count; without any measurement the count itself.
 */
export function speedWith(speeds: SharingJob['speeds'], members: number): number {
  const measured = speeds.get(members)
  if (measured !== undefined) return measured
  const counts = [...speeds.keys()].filter((count) => count > 0).sort((a, b) => a - b)
  const below = counts.filter((count) => count < members)
  const nearest = below.at(-1) ?? counts[0]
  if (nearest === undefined) return members
  const speed = speeds.get(nearest) ?? 0
  const before = below.at(-2)
  const perMember = speed / nearest
  if (before === undefined) return perMember * members
  const slope = (speed - (speeds.get(before) ?? 0)) / (nearest - before)
  return speed + Math.max(0, Math.min(slope, perMember)) * (members - nearest)
}

/** How much faster, in proportion, one member more makes a job of that many, weighted by its priority. */
export function gainOfOneMore(
  { speeds, priority, criticalMembers }: Pick<SharingJob, 'speeds' | 'priority' | 'criticalMembers'>,
  members: number,
): number {
  const now = learnt(speedWith(speeds, members), members, criticalMembers)
  const more = learnt(speedWith(speeds, members + 1), members + 1, criticalMembers)
  return weightOf(priority) * (now > 0 ? (more - now) / now : 1)
}

/** Of samples a second what brings the training on: a batch of n members needs 1 + n/critical as many samples. */
function learnt(samplesPerSecond: number, members: number, critical = Number.POSITIVE_INFINITY): number {
  return samplesPerSecond / (1 + members / Math.max(critical, 1e-3))
}

function weightOf(priority: number): number {
  return 2 ** priority
}

/** A job and the volunteers that it has in the wanted assignment. */
interface Crew {
  readonly job: SharingJob
  readonly members: Set<Lender>
}

/** A volunteer that goes from one job's growth to another's. */
interface Shift {
  readonly from: Crew
  readonly to: Crew
  /** weighted gain of the one job less the loss of the other and the cost of the move */
  readonly worth: number
}

/** Begins with the present assignment; each rule changes it in turn. */
class WantedAssignment {
  readonly #now: number
  readonly #lenders: readonly Lender[]
  /** in the order in which they are served */
  readonly #crews: readonly Crew[]
  readonly #byJob: ReadonlyMap<JobId, Crew>
  readonly #crewOf = new Map<Lender, Crew>()
  readonly #idle = new Set<Lender>()
  readonly #reasons = new Map<Lender, string>()

  constructor(jobs: readonly SharingJob[], lenders: readonly Lender[], now: number) {
    this.#now = now
    this.#crews = [...jobs].sort(inOrder).map((job) => ({ job, members: new Set() }))
    this.#byJob = new Map(this.#crews.map((crew) => [crew.job.id, crew]))
    const choices = new Map(lenders.map((lender) => [lender, jobs.filter((job) => fits(job, lender)).length]))
    // those that few jobs can use go first: the others stay for the rest
    this.#lenders = [...lenders].sort((a, b) => (choices.get(a) ?? 0) - (choices.get(b) ?? 0) || (a.id < b.id ? -1 : 1))
    for (const lender of this.#lenders) this.#begin(lender)
    for (const crew of this.#crews) if (isGathering(crew)) this.#releaseAll(crew)
  }

  #begin(lender: Lender): void {
    const crew = lender.job === undefined ? undefined : this.#byJob.get(lender.job)
    if (crew !== undefined && fits(crew.job, lender)) this.#seat(lender, crew)
    else this.#idle.add(lender)
  }

  #seat(lender: Lender, crew: Crew, reason?: string): void {
    this.#crewOf.get(lender)?.members.delete(lender)
    this.#idle.delete(lender)
    crew.members.add(lender)
    this.#crewOf.set(lender, crew)
    if (reason !== undefined) this.#reasons.set(lender, reason)
  }

  /** What a job gathered that cannot start is at the disposal of all. */
  #releaseAll(crew: Crew): void {
    for (const lender of crew.members) {
      this.#crewOf.delete(lender)
      this.#idle.add(lender)
    }
    crew.members.clear()
  }

  /** An owner's choice comes before every rule but the maximum. */
  seatChosen(): void {
    for (const lender of [...this.#idle]) {
      const crew = lender.chosen === undefined ? undefined : this.#byJob.get(lender.chosen)
      if (crew !== undefined && hasRoom(crew) && fits(crew.job, lender))
        this.#seat(lender, crew, 'its owner chose this job')
    }
  }

  /**
   * Jobs below their minimum, by priority. One that trains takes what there is. One that waits starts when it reaches
   * its minimum. If it would reach it once other jobs end, no later job may start with what it waits for. So it does
   * not wait for ever. Running jobs may grow by those volunteers meanwhile and give them back.
   */
  fillMinimums(): void {
    const awaited: SharingJob[] = []
    for (const crew of this.#crews.filter(isShort)) {
      const isFree = (lender: Lender): boolean => crew.job.isRunning || !awaited.some((job) => fits(job, lender))
      const usable = this.#usableFor(crew).filter(isFree)
      if (crew.job.isRunning || sizeOf(crew) + usable.length >= crew.job.min) this.#fill(crew, isFree)
      else if (this.#isReachable(crew)) awaited.push(crew.job)
    }
  }

  #isReachable({ job }: Crew): boolean {
    return this.#lenders.filter((lender) => lender.isInert !== true && fits(job, lender)).length >= job.min
  }

  #fill(crew: Crew, isFree: (lender: Lender) => boolean): void {
    const { min, priority, isRunning } = crew.job
    const reason = `a job of priority ${priority} needs ${min} to ${isRunning ? 'go on' : 'start'}`
    while (sizeOf(crew) < min) {
      const next = this.#usableFor(crew).find(isFree)
      if (next === undefined) return
      this.#seat(next, crew, reason)
    }
  }

  /** Its own first, then the idle ones, then what other jobs can spare, from the job that loses least. */
  #usableFor(crew: Crew): Lender[] {
    const idle = [...this.#idle].filter((lender) => fits(crew.job, lender))
    const own = idle.filter(({ job }) => job === crew.job.id)
    const others = idle.filter(({ job }) => job !== crew.job.id)
    const donors = this.#crews
      .filter((other) => other !== crew)
      .sort((a, b) => lossOf(a) - lossOf(b) || inOrder(b.job, a.job))
    return [...own, ...others, ...donors.flatMap((donor) => this.#spared(donor, crew))]
  }

  /** Of a job that has not begun all of its members, when another one comes before it. */
  #spared(donor: Crew, { job }: Crew): Lender[] {
    const isYielding = !donor.job.isRunning && inOrder(job, donor.job) < 0
    const spare = sizeOf(donor) - (isYielding ? 0 : donor.job.min)
    return newestFirst(donor)
      .filter((lender) => fits(job, lender))
      .slice(0, Math.max(0, spare))
  }

  /** The rest goes where it helps most; where no job can use it, it prepares for one that waits. */
  placeIdle(): void {
    const reachable = new Set(this.#crews.filter((crew) => this.#isReachable(crew)))
    const waiting = this.#crews
      .filter(isShort)
      .sort((a, b) => Number(reachable.has(b)) - Number(reachable.has(a)) || inOrder(a.job, b.job))
    for (const lender of this.#lenders.filter((one) => this.#idle.has(one))) {
      const growing = this.#bestGrowth(lender)
      const gathering = waiting.find((crew) => hasRoom(crew) && fits(crew.job, lender))
      if (growing !== undefined) this.#seat(lender, growing, growthText(growing))
      else if (gathering !== undefined) this.#seat(lender, gathering, 'it waits with others for this job to start')
    }
  }

  #bestGrowth(lender: Lender): Crew | undefined {
    return this.#crews
      .filter((crew) => !isShort(crew) && hasRoom(crew) && fits(crew.job, lender))
      .reduce<Crew | undefined>(
        (best, crew) => (best === undefined || gainOf(crew) > gainOf(best) ? crew : best),
        undefined,
      )
  }

  /** Growth moves only where it pays: the weighted gain exceeds the loss and what the move costs both jobs. */
  shiftGrowth(): void {
    for (let shift = this.#bestShift(); shift !== undefined; shift = this.#bestShift()) {
      const lender = this.#movable(shift)
      if (lender === undefined) return
      this.#seat(lender, shift.to, `${growthText(shift.to)}, and costs less where it was`)
    }
  }

  #bestShift(): Shift | undefined {
    const steady = this.#crews.filter(({ job }) => !job.isReforming)
    const donors = steady.filter((crew) => sizeOf(crew) > crew.job.min)
    const takers = steady.filter((crew) => !isShort(crew) && hasRoom(crew))
    return donors
      .flatMap((from) => takers.filter((to) => to !== from).map((to) => ({ from, to, worth: worthOf(from, to) })))
      .filter((shift) => shift.worth > 0)
      .sort((a, b) => b.worth - a.worth)
      .find((shift) => this.#movable(shift) !== undefined)
  }

  /** It has been there long enough. */
  #movable({ from, to }: Shift): Lender | undefined {
    return newestFirst(from).find(
      (lender) => lender.job === from.job.id && this.#now - lender.since >= STAY_MS && fits(to.job, lender),
    )
  }

  /** A change that would meet another one half-way waits for the next look. */
  moves(): JobMove[] {
    const counts = new Map<JobId, number>()
    for (const { job, isInert } of this.#lenders)
      if (job !== undefined && isInert !== true) counts.set(job, (counts.get(job) ?? 0) + 1)
    const changed = this.#lenders.filter((lender) => this.#crewOf.get(lender)?.job.id !== lender.job)
    const leavesOne = ({ job }: Lender): boolean => job !== undefined && this.#byJob.has(job)
    // who leaves a place comes before those who may take it
    return [...changed.filter(leavesOne), ...changed.filter((lender) => !leavesOne(lender))].flatMap((lender) => {
      const to = this.#crewOf.get(lender)?.job
      const from = lender.job === undefined ? undefined : this.#byJob.get(lender.job)?.job
      if (to === undefined || (counts.get(to.id) ?? 0) >= to.max) return []
      if (from !== undefined && fits(from, lender) && !canSpare(from, counts.get(from.id) ?? 0)) return []
      if (from !== undefined) counts.set(from.id, (counts.get(from.id) ?? 0) - 1)
      counts.set(to.id, (counts.get(to.id) ?? 0) + 1)
      return [{ volunteer: lender.id, from: lender.job, to: to.id, reason: this.#reasons.get(lender) ?? '' }]
    })
  }
}

/** Members that work, or may. */
function sizeOf({ members }: Crew): number {
  let size = 0
  for (const { isInert } of members) if (isInert !== true) size++
  return size
}

function isShort(crew: Crew): boolean {
  return sizeOf(crew) < crew.job.min
}

function isGathering(crew: Crew): boolean {
  return isShort(crew) && !crew.job.isRunning
}

function hasRoom(crew: Crew): boolean {
  return sizeOf(crew) < crew.job.max
}

function canSpare({ isRunning, isReforming, min }: SharingJob, members: number): boolean {
  return !isReforming && (!isRunning || members > min)
}

function gainOf(crew: Crew): number {
  return gainOfOneMore(crew.job, sizeOf(crew))
}

/** What the job loses with one member. */
function lossOf(crew: Crew): number {
  const size = sizeOf(crew)
  return size === 0 ? 0 : gainOfOneMore(crew.job, size - 1)
}

function worthOf(from: Crew, to: Crew): number {
  const cost = (weightOf(from.job.priority) + weightOf(to.job.priority)) * (MOVE_MS / PAYS_WITHIN_MS)
  return gainOf(to) - lossOf(from) - cost
}

/** Who came last has prepared least. */
function newestFirst({ members }: Crew): Lender[] {
  const able = [...members].filter(({ isInert }) => isInert !== true)
  return able.sort((a, b) => b.since - a.since || (a.id < b.id ? -1 : 1))
}

function growthText({ job, members }: Crew): string {
  const faster = Math.round((100 * gainOf({ job, members })) / weightOf(job.priority))
  return `one member more makes a job of priority ${job.priority} ${faster} % faster`
}
