// What the operator needs of a cluster. Implemented by the API server of Kubernetes.
import { GridError } from '@starling-grid/protocol'
import type { TrainingJob, TrainingJobStatus } from './training-job.ts'

/** All TrainingJobs at one moment, and where a watch goes on from. */
export interface TrainingJobList {
  readonly items: readonly TrainingJob[]
  readonly resourceVersion: string
}

export type ClusterEvent =
  | { readonly type: 'changed'; readonly job: TrainingJob }
  | { readonly type: 'deleted'; readonly job: TrainingJob }
  /** nothing changed up to this version */
  | { readonly type: 'bookmark'; readonly resourceVersion: string }

/** A change to one object as it was read: it is refused with status 409 when the object is another by now. */
export type ReadObject = Pick<TrainingJob['metadata'], 'name' | 'resourceVersion'>

export interface Cluster {
  list(): Promise<TrainingJobList>
  /** What happens behind a version, until the server ends it. @throws ClusterRefusal 410 when the version is too old */
  watch(resourceVersion: string, signal: AbortSignal): AsyncIterable<ClusterEvent>
  /** The object as it is then. */
  setFinalizers(object: ReadObject, finalizers: readonly string[]): Promise<TrainingJob>
  setStatus(object: ReadObject, status: TrainingJobStatus): Promise<TrainingJob>
  /** that a Deployment asks for */
  replicas(deployment: string): Promise<number>
  setReplicas(deployment: string, replicas: number): Promise<void>
}

/** HTTP statuses of the API server that mean something to the operator. */
export const CONFLICT = 409
export const GONE = 410
export const NOT_FOUND = 404

export class ClusterRefusal extends GridError {
  /** of HTTP; 0: no answer came */
  readonly status: number
  constructor(status: number, message: string, options?: ErrorOptions) {
    super('cluster-refused', message, options)
    this.status = status
  }
}

export function isRefusal(error: unknown, status: number): boolean {
  return error instanceof ClusterRefusal && error.status === status
}
