// A TrainingJob as an API server of Kubernetes stores it: what its author wants, and what the operator tells of it.
import { parse, type ReadonlyOf } from '@starling-grid/protocol'
import * as Type from 'typebox'
import type { Static } from 'typebox'

export const GROUP = 'starling-grid.io'
export const VERSION = 'v1alpha1'
export const PLURAL = 'trainingjobs'
/** While it stands, the object stays: the operator takes leave of the job first. */
export const FINALIZER = `${GROUP}/job`

/** What the operator knows of the job. */
const JobPhaseSchema = Type.Union([
  Type.Literal('Pending'),
  Type.Literal('Waiting'),
  Type.Literal('Running'),
  Type.Literal('Paused'),
  Type.Literal('Stopping'),
  Type.Literal('Finished'),
  Type.Literal('Failed'),
])
export type JobPhase = Static<typeof JobPhaseSchema>

const ConditionSchema = Type.Object({
  type: Type.String(),
  status: Type.Union([Type.Literal('True'), Type.Literal('False'), Type.Literal('Unknown')]),
  /** one word, for programs */
  reason: Type.String(),
  /** for people */
  message: Type.String(),
  lastTransitionTime: Type.String(),
  observedGeneration: Type.Optional(Type.Integer()),
})
export type Condition = ReadonlyOf<typeof ConditionSchema>

export const TrainingJobStatusSchema = Type.Object({
  observedGeneration: Type.Optional(Type.Integer()),
  phase: Type.Optional(JobPhaseSchema),
  /** id of the job at the coordinator */
  jobId: Type.Optional(Type.String()),
  /** of spec.job as it was submitted */
  submitted: Type.Optional(Type.String()),
  step: Type.Optional(Type.Integer()),
  epoch: Type.Optional(Type.Integer()),
  loss: Type.Optional(Type.Number()),
  validationLoss: Type.Optional(Type.Number()),
  /** of the last validation, 0 to 1 */
  accuracy: Type.Optional(Type.Number()),
  samplesPerSecond: Type.Optional(Type.Number()),
  /** that take part */
  volunteers: Type.Optional(Type.Integer()),
  message: Type.Optional(Type.String()),
  conditions: Type.Optional(Type.Array(ConditionSchema)),
})
export type TrainingJobStatus = ReadonlyOf<typeof TrainingJobStatusSchema>

/** What becomes of the job when the TrainingJob is deleted: it ends and its model stays, or all of it goes. */
const WhenDeletedSchema = Type.Union([Type.Literal('Stop'), Type.Literal('Delete')])

/** Fields of others are none of ours. */
export const TrainingJobSchema = Type.Object({
  metadata: Type.Object({
    name: Type.String(),
    uid: Type.String(),
    resourceVersion: Type.String(),
    generation: Type.Optional(Type.Integer()),
    deletionTimestamp: Type.Optional(Type.String()),
    finalizers: Type.Optional(Type.Array(Type.String())),
  }),
  spec: Type.Object({
    job: Type.Record(Type.String(), Type.Unknown()),
    /** absent: a job that an owner paused by other means stays paused */
    paused: Type.Optional(Type.Boolean()),
    whenDeleted: Type.Optional(WhenDeletedSchema),
  }),
  status: Type.Optional(TrainingJobStatusSchema),
})
export type TrainingJob = Static<typeof TrainingJobSchema>

/** @throws GridError 'message-malformed' */
export function asTrainingJob(value: unknown): TrainingJob {
  return parse(TrainingJobSchema, value, 'a TrainingJob')
}

/** By which the coordinator's job is found again: of this object, and of no other that has its name later. */
export function referenceOf({ metadata }: TrainingJob): string {
  return `kubernetes:${metadata.uid}`
}
