// Jobs that this volunteer declines for a while, and why: the owner's limits refuse them, or they lost its GPU again
// and again. The latter are remembered beyond a restart, so that no job breaks a driver at every start.
import { type JobId, parseJson } from '@starling-grid/protocol'
import type { KeptNotes } from './kept-notes.ts'

/**
 * Losses of the device in LOSS_WINDOW_MS after which the job is left. One is repaired, two may be another program's.
 */
export const MOST_LOSSES = 3
const LOSS_WINDOW_MS = 3_600_000
/** ms that a job which loses the device is not taken */
export const DECLINED_MS = 6 * 3_600_000
/** ms for which losses are kept: until no job is declined for them */
export const LOSSES_KEPT_MS = DECLINED_MS + LOSS_WINDOW_MS
/** ms between losses that volunteers of one machine note, which are then one loss of its device */
const ONE_LOSS_MS = 5000
/** Jobs that are remembered, the latest ones; a hello names no more. */
const MOST_JOBS = 64
const MOST_BYTES = 64 * 1024

export interface Declined {
  readonly reason: string
  /** by the clock on the wall; infinite: while this volunteer runs */
  readonly until: number
}

interface Note {
  readonly job: string
  /** when the device was lost */
  readonly losses: readonly number[]
  readonly until: number
}

export class DeclinedJobs {
  readonly #kept: KeptNotes | undefined
  readonly #now: () => number
  readonly #declined = new Map<JobId, Declined>()
  #losses = new Map<string, Note>()

  constructor(kept: KeptNotes | undefined, wallTime: () => number) {
    this.#kept = kept
    this.#now = wallTime
  }

  /** What earlier visits wrote, and other volunteers of this owner. */
  async load(): Promise<void> {
    const texts = await this.#kept?.others().catch(() => []) // no storage: it knows its own losses
    this.#losses = new Map()
    for (const note of (texts ?? []).flatMap(notesIn))
      this.#losses.set(note.job, joined(note, this.#losses.get(note.job)))
  }

  find(job: JobId): Declined | undefined {
    const until = this.#losses.get(job)?.until ?? 0
    const declined = this.#declined.get(job) ?? { reason: LOST_REASON, until }
    return declined.until > this.#now() ? declined : undefined
  }

  /** Those that it does not take now, the latest ones. */
  get present(): JobId[] {
    const jobs = new Set([...this.#losses.keys(), ...this.#declined.keys()] as JobId[])
    return [...jobs].filter((job) => this.find(job) !== undefined).slice(-MOST_JOBS)
  }

  add(job: JobId, reason: string, ms: number): void {
    this.#declined.set(job, { reason, until: this.#now() + ms })
  }

  /** The device was lost while this job ran. True: the job is declined from now on. */
  lost(job: JobId): boolean {
    const now = this.#now()
    const before = this.#losses.get(job)?.losses ?? []
    const losses = [...before.filter((at) => now - at < LOSS_WINDOW_MS), now].slice(-MOST_LOSSES)
    const isDeclined = losses.length >= MOST_LOSSES
    this.#losses.delete(job)
    this.#losses.set(job, { job, losses, until: isDeclined ? now + DECLINED_MS : 0 })
    const notes = [...this.#losses.values()].slice(-MOST_JOBS)
    void this.#kept?.write(JSON.stringify(notes)).catch(() => undefined) // no storage: it is known until the end
    return isDeclined
  }
}

const LOST_REASON = `this job lost the GPU ${MOST_LOSSES} times within an hour`

/** What two volunteers noted of one job. */
function joined(one: Note, other: Note | undefined): Note {
  if (other === undefined) return one
  const times = [...one.losses, ...other.losses].sort((a, b) => a - b)
  const losses = times.filter((at, i) => at - (times[i - 1] ?? Number.NEGATIVE_INFINITY) >= ONE_LOSS_MS)
  return { job: one.job, losses, until: Math.max(one.until, other.until) }
}

/** An absent or damaged text says that nothing was lost. */
function notesIn(text: string): Note[] {
  try {
    const notes = parseJson(text, MOST_BYTES, 'jobs that are declined')
    return Array.isArray(notes) ? notes.filter(isNote).slice(-MOST_JOBS) : []
  } catch {
    return []
  }
}

function isNote(value: unknown): value is Note {
  if (typeof value !== 'object' || value === null) return false
  const { job, losses, until } = value as Partial<Record<keyof Note, unknown>>
  return typeof job === 'string' && Number.isFinite(until) && Array.isArray(losses) && losses.every(Number.isFinite)
}
