// What a coordinator's server knows of the others that share its store: for its sessions, runs, routes and pages. One
// whose store is its own has no owners, and all of this says so.
import { type CoordinatorList, type JobId, MAX_COORDINATORS } from '@starling-grid/protocol'
import type { CoordinatorRoutes, PageParts } from '../api/coordinators.ts'
import { shownJobId } from '../api/metrics.ts'
import type { JobOwners } from '../api/pages.ts'
import type { CoordinatorClock } from '../clock.ts'
import { machineId } from '../folder-owner.ts'
import type { RunParts } from '../host/run-host.ts'
import type { Runs, SharedParts } from '../jobs/runs.ts'
import type { CoordinatorId, OwnerBook } from '../journal/owner-book.ts'
import type { CoordinatorJobs } from '../metrics/gauges.ts'
import { elsewhereOf } from '../owners/elsewhere.ts'
import { type Other, Owners, type OwnersParts } from '../owners/owners.ts'
import type { OtherCoordinators, Sessions } from './sessions.ts'

export interface SharedJobsParts {
  readonly clock: CoordinatorClock
  readonly self: CoordinatorId
  /** absent: the store is this coordinator's alone */
  readonly book: OwnerBook | undefined
  /** where volunteers, people and the others find this one */
  readonly url: () => string
  /** false: it ends */
  readonly takesJobs: () => boolean
  /** of the names of private jobs */
  readonly secret: string
  /** they are made after this */
  readonly runs: () => Runs
  readonly sessions: () => Sessions
}

export class SharedJobs {
  readonly #parts: SharedJobsParts
  readonly owners: Owners | undefined

  constructor(parts: SharedJobsParts, told: Pick<OwnersParts, 'onTrouble' | 'onPassed'>) {
    this.#parts = parts
    if (parts.book !== undefined) this.owners = this.#createOwners(parts.book, told)
  }

  #createOwners(book: OwnerBook, told: Pick<OwnersParts, 'onTrouble' | 'onPassed'>): Owners {
    const { clock, self, url, takesJobs, runs, sessions } = this.#parts
    const startedAt = clock.wallTime()
    const machine = machineId()
    return new Owners({
      ...told,
      clock,
      book,
      self,
      card: () => ({
        url: url(),
        machine,
        startedAt,
        takesJobs: takesJobs(),
        publicJobs: publicOf(runs()),
        ...runs().shared(),
      }),
      jobs: {
        has: (job) => runs().has(job),
        list: () => jobsOf(runs()),
        open: (job) => runs().open(job),
        drop: (job) => runs().drop(job),
        close: (job) => runs().close(job),
        isIdle: (job) => runs().isIdle(job),
      },
      onOthers: (urls) => sessions().othersChanged(urls),
      onCutOff: () => sessions().sendAllAway(),
    })
  }

  // ---- for sessions and runs ----

  get forSessions(): { readonly others?: OtherCoordinators } {
    const { owners } = this
    if (owners === undefined) return {}
    return {
      others: {
        urls: () => this.#others.map(({ card }) => card.url),
        isCutOff: () => owners.isCutOff,
        whereIs(job) {
          const whereabouts = owners.whereIs(job)
          if (whereabouts === 'here' || whereabouts === 'unknown') return undefined
          return typeof whereabouts === 'object' && !whereabouts.ends ? whereabouts : 'soon'
        },
      },
    }
  }

  get forRuns(): { readonly shared?: SharedParts } {
    const { owners } = this
    if (owners === undefined) return {}
    return {
      shared: {
        self: this.#parts.self,
        elsewhere: () => elsewhereOf(this.#others.map(({ card }) => card)),
        coordinators: () => this.#addresses,
        makeRoom: (job) => owners.makeRoom(job),
      },
    }
  }

  get #others(): readonly Other[] {
    return this.owners?.others.slice(0, MAX_COORDINATORS) ?? []
  }

  get #addresses(): ReturnType<NonNullable<RunParts['coordinators']>> {
    const others = this.#others.map(({ card }) => card.url)
    return others.length === 0 ? undefined : { owner: this.#parts.url(), others }
  }

  // ---- for routes and pages ----

  /** Their addresses. */
  get others(): readonly string[] {
    return this.#others.map(({ card }) => card.url)
  }

  get forRoutes(): Pick<CoordinatorRoutes, 'whereIs' | 'isPublic' | 'list'> {
    return {
      whereIs: (job) => this.owners?.whereIs(job) ?? 'here',
      isPublic: (job) => this.#others.some(({ card }) => card.publicJobs.includes(job)),
      list: (isTrusted) => this.list(isTrusted),
    }
  }

  /** Jobs that are neither finished nor paused, by their coordinator. */
  openJobs(isTrusted: boolean): readonly CoordinatorJobs[] {
    const { url, runs } = this.#parts
    const ids = (jobs: readonly { readonly id: JobId }[]): JobId[] => jobs.map(({ id }) => id)
    return [
      { url: url(), jobs: this.#shown(isTrusted, ids(runs().shared().jobs), publicOf(runs())) },
      ...this.#others.map(({ card }) => ({
        url: card.url,
        jobs: this.#shown(isTrusted, ids(card.jobs), card.publicJobs),
      })),
    ]
  }

  #shown(isTrusted: boolean, jobs: readonly JobId[], known: readonly JobId[]): string[] {
    return jobs.map((job) => (isTrusted ? job : shownJobId(job, known.includes(job), this.#parts.secret)))
  }

  list(isTrusted: boolean): CoordinatorList['coordinators'] {
    const { url, takesJobs, runs } = this.#parts
    const elsewhere = this.owners?.elsewhere() ?? []
    return [
      {
        url: url(),
        takesJobs: takesJobs(),
        volunteers: runs().shared().seats.length,
        jobs: this.#shown(isTrusted, jobsOf(runs()), publicOf(runs())),
      },
      ...this.#others.map(({ card }) => ({
        url: card.url,
        takesJobs: card.takesJobs,
        volunteers: card.seats.length + Object.values(card.more).reduce((sum, count) => sum + count, 0),
        jobs: this.#shown(
          isTrusted,
          elsewhere.flatMap(({ job, url: at }) => (at === card.url ? [job] : [])),
          card.publicJobs,
        ),
      })),
    ]
  }

  /** Of /readyz. */
  get jobOwners(): JobOwners {
    if (this.owners === undefined) return {}
    return { owners: Object.fromEntries(this.list(false).flatMap(({ url, jobs }) => jobs.map((job) => [job, url]))) }
  }

  /** A page without a job is shown where there is one. */
  readonly pageElsewhere: PageParts['elsewhere'] = (job) => {
    if (job === undefined)
      return this.#parts.runs().current() === undefined
        ? this.#others.find(({ card }) => card.jobs.length > 0)?.card.url
        : undefined
    const whereabouts = this.owners?.whereIs(job)
    return typeof whereabouts === 'object' ? whereabouts.url : undefined
  }
}

function publicOf(runs: Runs): JobId[] {
  return runs.list().flatMap(({ job: { id, spec } }) => (spec.public === true ? [id] : []))
}

function jobsOf(runs: Runs): JobId[] {
  return [...runs.list().map(({ job }) => job.id), ...runs.damaged().map(({ id }) => id)]
}
