// What the operator does next for one TrainingJob, and what it tells of it. Pure: the same state gives the same answer,
// however often it is asked, so that a restart or a doubled event changes nothing.
import { plainText, type RunView } from '@starling-grid/protocol'
import { FINALIZER, type Condition, type JobPhase, type TrainingJob, type TrainingJobStatus } from './training-job.ts'

/** What the coordinator says of the job. */
export type JobSeen =
  | { readonly type: 'run'; readonly view: RunView }
  /** it has no such job */
  | { readonly type: 'none' }
  /** it has the job and cannot open it, or refuses its description */
  | { readonly type: 'refused'; readonly why: string }
  /** it does not answer */
  | { readonly type: 'unknown'; readonly why: string }

export type OperatorAction = 'add-finalizer' | 'submit' | 'pause' | 'resume' | 'stop' | 'delete' | 'remove-finalizer'

export interface OperatorDecision {
  readonly action: OperatorAction
  readonly reason: string
}

/** Undefined: all is as it should be, or nothing can be done now. */
export function nextAction(job: TrainingJob, seen: JobSeen): OperatorDecision | undefined {
  const { metadata, spec, status = {} } = job
  const hasFinalizer = metadata.finalizers?.includes(FINALIZER) ?? false
  if (metadata.deletionTimestamp !== undefined) return hasFinalizer ? leaveOf(job, seen) : undefined
  if (!hasFinalizer) return { action: 'add-finalizer', reason: 'the job ends before its object goes' }
  if (seen.type === 'none' && status.jobId === undefined && !isRefused(job))
    return { action: 'submit', reason: 'the coordinator does not have it yet' }
  return seen.type === 'run' ? pauseOf(spec.paused, seen.view) : undefined
}

/** @param wanted undefined: the object does not say, and what an owner did by other means stays */
function pauseOf(wanted: boolean | undefined, { phase, paused }: RunView): OperatorDecision | undefined {
  if (wanted === undefined || wanted === paused || phase === 'finished') return undefined
  return { action: wanted ? 'pause' : 'resume', reason: `spec.paused is ${wanted}` }
}

/** The same description was refused before: it is not sent again until it changes. */
function isRefused({ metadata, status = {} }: TrainingJob): boolean {
  return status.phase === 'Failed' && status.observedGeneration === metadata.generation
}

/** Its object is to go. */
function leaveOf({ spec, status = {} }: TrainingJob, seen: JobSeen): OperatorDecision | undefined {
  switch (seen.type) {
    case 'unknown':
      return undefined
    case 'none':
    case 'refused':
      return { action: 'remove-finalizer', reason: 'the coordinator has no job of it' }
    case 'run': {
      const { phase, paused } = seen.view
      const isGone = spec.whenDeleted === 'Delete'
      if (phase === 'finished')
        return isGone
          ? { action: 'delete', reason: 'spec.whenDeleted is Delete, and the job has ended' }
          : { action: 'remove-finalizer', reason: 'the job has ended, and its model stays' }
      if (status.phase !== 'Stopping') return { action: 'stop', reason: 'its TrainingJob is deleted' }
      // A paused job takes no step, and so would never end.
      if (isGone && paused) return { action: 'resume', reason: 'a paused job does not end' }
      return isGone ? undefined : { action: 'remove-finalizer', reason: 'the job ends with its epoch; its model stays' }
    }
    default:
      return seen satisfies never
  }
}

export interface StatusMoment {
  /** RFC 3339 */
  readonly now: string
  /** of spec.job as it is now */
  readonly digest: string
  /** it was told to end by this pass */
  readonly isStopped?: boolean
}

/** What the status should say; conditions that stay keep the time since which they hold. */
export function statusOf(job: TrainingJob, seen: JobSeen, moment: StatusMoment): TrainingJobStatus {
  const { metadata, status: before = {} } = job
  const view = seen.type === 'run' ? seen.view : undefined
  const jobId = view?.job.id ?? before.jobId
  const submitted = before.submitted ?? (view === undefined ? undefined : moment.digest)
  const { conditions: _, ...old } = before
  const known = view === undefined ? old : {}
  return {
    ...known,
    ...(view === undefined ? {} : figuresOf(view)),
    ...(metadata.generation === undefined ? {} : { observedGeneration: metadata.generation }),
    ...(jobId === undefined ? {} : { jobId }),
    ...(submitted === undefined ? {} : { submitted }),
    phase: phaseOf(job, seen, moment),
    message: messageOf(job, seen),
    conditions: conditionsOf({ ...job, status: { ...before, ...(submitted && { submitted }) } }, seen, moment),
  }
}

const isDeleting = ({ metadata }: TrainingJob): boolean => metadata.deletionTimestamp !== undefined

function phaseOf(job: TrainingJob, seen: JobSeen, { isStopped = false }: StatusMoment): JobPhase {
  const { status = {} } = job
  switch (seen.type) {
    case 'unknown':
      return status.phase ?? 'Pending'
    case 'none':
      return status.jobId === undefined && !isRefused(job) ? 'Pending' : 'Failed'
    case 'refused':
      return 'Failed'
    case 'run':
      if (seen.view.phase === 'finished') return 'Finished'
      if (isStopped || (isDeleting(job) && status.phase === 'Stopping')) return 'Stopping'
      if (seen.view.paused) return 'Paused'
      return seen.view.phase === 'waiting' || seen.view.phase === 'lost' ? 'Waiting' : 'Running'
    default:
      return seen satisfies never
  }
}

function messageOf({ status = {} }: TrainingJob, seen: JobSeen): string {
  switch (seen.type) {
    case 'run':
      return plainText(seen.view.reason)
    case 'none':
      return status.jobId === undefined
        ? (status.message ?? 'not submitted yet')
        : `the coordinator no longer has the job ${status.jobId}; delete this TrainingJob and create it again`
    default:
      return seen.why
  }
}

function figuresOf(view: RunView): TrainingJobStatus {
  const { version, epoch, lastStep, lastValidation, samplesPerSecond, memberCount } = view
  return {
    step: version.v,
    epoch,
    volunteers: memberCount,
    samplesPerSecond: rounded(samplesPerSecond),
    ...(lastStep === null ? {} : { loss: rounded(lastStep.loss) }),
    ...(lastValidation === null
      ? {}
      : { validationLoss: rounded(lastValidation.loss), accuracy: rounded(lastValidation.accuracy) }),
  }
}

/** Four digits: what people read, and fewer changes to write. */
function rounded(value: number): number {
  return Number(value.toPrecision(4))
}

type Finding = Pick<Condition, 'type' | 'status' | 'reason' | 'message'>

function conditionsOf(job: TrainingJob, seen: JobSeen, { now, digest }: StatusMoment): readonly Condition[] {
  const { metadata, status = {} } = job
  const found: Finding[] = [reachable(seen), ...submission(job, seen), ...training(seen)]
  if (status.submitted !== undefined)
    found.push(
      status.submitted === digest
        ? { type: 'UpToDate', status: 'True', reason: 'AsSubmitted', message: 'spec.job is as it was submitted' }
        : {
            type: 'UpToDate',
            status: 'False',
            reason: 'SpecChanged',
            message: 'a job does not change once it is submitted; delete this TrainingJob and create another',
          },
    )
  const generation = metadata.generation === undefined ? {} : { observedGeneration: metadata.generation }
  const conditions = new Map((status.conditions ?? []).map((condition) => [condition.type, condition]))
  for (const finding of found) {
    const old = conditions.get(finding.type)
    const since = old?.status === finding.status ? old.lastTransitionTime : now
    conditions.set(finding.type, { ...finding, ...generation, lastTransitionTime: since })
  }
  return [...conditions.values()]
}

function reachable(seen: JobSeen): Finding {
  return seen.type === 'unknown'
    ? { type: 'CoordinatorReachable', status: 'False', reason: 'NoAnswer', message: seen.why }
    : { type: 'CoordinatorReachable', status: 'True', reason: 'Answers', message: 'the coordinator answers' }
}

function submission(job: TrainingJob, seen: JobSeen): Finding[] {
  const type = 'Submitted'
  switch (seen.type) {
    case 'run':
      return [{ type, status: 'True', reason: 'Accepted', message: `it is job ${seen.view.job.id}` }]
    case 'refused':
      return [{ type, status: 'False', reason: 'Refused', message: seen.why }]
    case 'none':
      if (job.status?.jobId === undefined)
        return isRefused(job) ? [] : [{ type, status: 'False', reason: 'NotYet', message: 'not submitted yet' }]
      return [{ type, status: 'False', reason: 'Gone', message: 'the coordinator does not have it any more' }]
    case 'unknown':
      return []
    default:
      return seen satisfies never
  }
}

function training(seen: JobSeen): Finding[] {
  if (seen.type !== 'run') return []
  const { phase, paused, reason } = seen.view
  const message = plainText(reason)
  const finished: Finding =
    phase === 'finished'
      ? { type: 'Finished', status: 'True', reason: 'Ended', message }
      : { type: 'Finished', status: 'False', reason: 'NotYet', message }
  return [{ type: 'Training', ...trainingNow(phase, paused), message }, finished]
}

function trainingNow(phase: RunView['phase'], paused: boolean): Pick<Finding, 'status' | 'reason'> {
  if (phase === 'finished') return { status: 'False', reason: 'Finished' }
  if (paused) return { status: 'False', reason: 'Paused' }
  return phase === 'waiting' || phase === 'lost'
    ? { status: 'False', reason: 'WaitsForVolunteers' }
    : { status: 'True', reason: 'Training' }
}
