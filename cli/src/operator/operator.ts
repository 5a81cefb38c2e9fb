// Looks after the TrainingJobs of a namespace: submits them, tells how they do, and runs as many volunteers as they
// have work for. Everything is decided anew in each pass, from what the cluster and the coordinator say then.
import { createHash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { type CoordinatorApi, isPassing } from '@starling-grid/client/coordinator-api'
import type { Log } from '@starling-grid/coordinator'
import { type Clock, describeError, isGridError, type JobSpec, type RunView } from '@starling-grid/protocol'
import { type Cluster, CONFLICT, isRefusal, NOT_FOUND } from './cluster.ts'
import { type JobSeen, nextAction, type OperatorAction, statusOf } from './reconcile.ts'
import { replicasFor } from './replicas.ts'
import { FINALIZER, referenceOf, type TrainingJob, type TrainingJobStatus } from './training-job.ts'
import { WatchedJobs } from './watched-jobs.ts'

/** ms between passes: how old the figures of a status are */
const PASS_MS = 5000
/** Actions on one TrainingJob in a pass: more would mean that two decisions undo each other. */
const MOST_ACTIONS = 6

export interface OperatorParts {
  readonly cluster: Cluster
  readonly api: CoordinatorApi
  readonly clock: Clock
  readonly log: Log
  /** of headless volunteers; undefined: something else scales them */
  readonly deployment?: string | undefined
  /** volunteers that it asks for at most */
  readonly most: number
  /** ms between passes */
  readonly passMs?: number
}

/** What the coordinator has: its jobs, or why it does not say. */
type Coordinated =
  | { readonly runs: readonly RunView[]; readonly damaged: ReadonlyMap<string, string> }
  | { readonly why: string }

export class Operator {
  readonly #parts: OperatorParts
  readonly #watched: WatchedJobs
  #wake: () => void = () => undefined
  #passedAt: number | undefined
  #lastReason = ''
  #lastTrouble = ''

  constructor(parts: OperatorParts) {
    this.#parts = parts
    this.#watched = new WatchedJobs({
      cluster: parts.cluster,
      clock: parts.clock,
      random: Math.random,
      onChange: () => this.#wake(),
      onTrouble: (message) => this.#trouble(message),
    })
  }

  /** ms since the last pass that reached the cluster; undefined: none did yet. */
  get silentMs(): number | undefined {
    return this.#passedAt === undefined ? undefined : this.#parts.clock.now() - this.#passedAt
  }

  /** Until the signal is raised. */
  async run(signal: AbortSignal): Promise<void> {
    const following = this.#watched.follow(signal)
    while (!signal.aborted) {
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve
      })
      await this.#pass().catch((error: unknown) => this.#trouble(describeError(error)))
      const rest = new AbortController()
      const { clock, passMs = PASS_MS } = this.#parts
      await Promise.race([woken, clock.sleep(passMs, AbortSignal.any([signal, rest.signal]))])
      rest.abort()
    }
    await following
  }

  async #pass(): Promise<void> {
    const jobs = this.#watched.list()
    if (jobs === undefined) return
    const coordinated = await this.#coordinated()
    for (const job of jobs) await this.#lookAfter(job, coordinated)
    if ('runs' in coordinated) await this.#scale()
    this.#passedAt = this.#parts.clock.now()
  }

  async #coordinated(): Promise<Coordinated> {
    try {
      const { jobs, damaged = [] } = await this.#parts.api.jobs()
      return { runs: jobs, damaged: new Map(damaged.map(({ id, message }) => [id, message])) }
    } catch (error) {
      this.#trouble(describeError(error))
      return { why: describeError(error) }
    }
  }

  /** What another changed meanwhile is looked at in the next pass. */
  async #lookAfter(job: TrainingJob, coordinated: Coordinated): Promise<void> {
    try {
      await this.#reconcile(job, seenIn(coordinated, job))
    } catch (error) {
      if (isRefusal(error, NOT_FOUND)) return this.#watched.forget(job)
      if (!isRefusal(error, CONFLICT)) this.#trouble(`${job.metadata.name}: ${describeError(error)}`)
    }
  }

  async #reconcile(first: TrainingJob, firstSeen: JobSeen): Promise<void> {
    let [job, seen, isStopped] = [first, firstSeen, false]
    for (let i = 0; i < MOST_ACTIONS; i++) {
      const decision = isStopped ? undefined : nextAction(job, seen)
      if (decision === undefined) break
      const { action, reason } = decision
      this.#log('info', `${action}: ${reason}`, job)
      if (action === 'add-finalizer' || action === 'remove-finalizer') {
        job = await this.#setFinalizer(job, action === 'add-finalizer')
        if (action === 'remove-finalizer') return
      } else {
        seen = await this.#act(action, job, seen)
        isStopped = action === 'stop' && seen.type === 'run'
      }
    }
    await this.#tell(job, statusOf(job, seen, { now: this.#now(), digest: digestOf(job), isStopped }))
  }

  async #setFinalizer(job: TrainingJob, wanted: boolean): Promise<TrainingJob> {
    const others = (job.metadata.finalizers ?? []).filter((name) => name !== FINALIZER)
    const changed = await this.#parts.cluster.setFinalizers(job.metadata, wanted ? [...others, FINALIZER] : others)
    this.#watched.take(changed)
    return changed
  }

  /** What the coordinator says of the job then. */
  async #act(
    action: Exclude<OperatorAction, 'add-finalizer' | 'remove-finalizer'>,
    job: TrainingJob,
    seen: JobSeen,
  ): Promise<JobSeen> {
    const { api } = this.#parts
    try {
      if (action === 'submit') return { type: 'run', view: await api.submit(specOf(job)) }
      if (seen.type !== 'run') throw new Error(`internal: ${action} of a job that the coordinator does not have`)
      const { id } = seen.view.job
      if (action === 'delete') {
        await api.delete(id)
        return { type: 'none' }
      }
      if (action === 'stop') await api.stop(id)
      else await api.setPaused(id, action === 'pause')
      return { type: 'run', view: await api.run(id) }
    } catch (error) {
      if (!isGridError(error)) throw error
      const why = describeError(error)
      return isPassing(error) || action !== 'submit' ? { type: 'unknown', why } : { type: 'refused', why }
    }
  }

  async #tell(job: TrainingJob, status: TrainingJobStatus): Promise<void> {
    const before = job.status ?? {}
    const names = new Set([...Object.keys(before), ...Object.keys(status)])
    const change = Object.fromEntries(
      [...names].map((name) => [name, (status as Record<string, unknown>)[name] ?? null]), // null: the field goes
    )
    if (isDeepStrictEqual(status, before)) return
    this.#watched.take(await this.#parts.cluster.setStatus(job.metadata, change as TrainingJobStatus))
    if (status.phase !== before.phase)
      this.#log('info', `${before.phase ?? 'new'} → ${status.phase}: ${status.message ?? ''}`, job)
  }

  /** By what the coordinator has now: a job that was submitted in this pass counts. */
  async #scale(): Promise<void> {
    const { deployment, cluster, most } = this.#parts
    if (deployment === undefined) return
    const coordinated = await this.#coordinated()
    if (!('runs' in coordinated)) return
    const { replicas, reason } = replicasFor(coordinated.runs, most)
    const now = await cluster.replicas(deployment)
    if (now !== replicas) await cluster.setReplicas(deployment, replicas)
    if (reason !== this.#lastReason || now !== replicas)
      this.#parts.log({ level: 'info', message: `${deployment}: ${now} → ${replicas} volunteers: ${reason}` })
    this.#lastReason = reason
  }

  #now(): string {
    return new Date(this.#parts.clock.wallTime()).toISOString().replace(/\.\d+Z$/, 'Z')
  }

  #log(level: 'info' | 'warn', message: string, { metadata: { name } }: TrainingJob): void {
    this.#parts.log({ level, message, about: { trainingJob: name } })
  }

  /** Once, as long as it stays the same. */
  #trouble(message: string): void {
    if (message !== this.#lastTrouble) this.#parts.log({ level: 'warn', message })
    this.#lastTrouble = message
  }
}

function seenIn(coordinated: Coordinated, job: TrainingJob): JobSeen {
  if ('why' in coordinated) return { type: 'unknown', why: coordinated.why }
  const reference = referenceOf(job)
  const id = job.status?.jobId
  const view = coordinated.runs.find((run) => (id === undefined ? run.job.reference === reference : run.job.id === id))
  if (view !== undefined) return { type: 'run', view }
  const damage = id === undefined ? undefined : coordinated.damaged.get(id)
  return damage === undefined ? { type: 'none' } : { type: 'refused', why: damage }
}

/** Unchecked on purpose, hence the cast: the coordinator checks it at submission, and says what is wrong. */
function specOf(job: TrainingJob): JobSpec {
  return { ...job.spec.job, reference: referenceOf(job) } as unknown as JobSpec
}

function digestOf({ spec }: TrainingJob): string {
  return createHash('sha256').update(JSON.stringify(spec.job)).digest('hex')
}
