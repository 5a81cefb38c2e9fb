// Messages between window and Worker. The Worker trains; the window shows, and owns the connections to other
// volunteers.
import { describeError, type ExecutorKind, isGridError, type JobId, type LinkIdentity } from '@starling-grid/protocol'
import type { SignallingAccess, VolunteerStatus } from '@starling-grid/volunteer'
import type { VisitorLimits } from './contribute/visitor-limits.ts'

/** What computes in a tab: the plain reference would only make pages heavier. */
export type TabExecutor = Exclude<ExecutorKind, 'reference'>

/** What a visitor lends, and to which job. */
export interface Lent {
  /** that others see */
  readonly name: string
  readonly limits: VisitorLimits
  /** undefined: any */
  readonly job: JobId | undefined
  /** that another coordinator sent it for */
  readonly sentFor?: JobId | undefined
  /** what computes; undefined: what is found and measured */
  readonly executor?: TabExecutor | undefined
}

export type ToWorker =
  /** once, first; `control` carries everything else, both ways */
  | (Lent & {
      readonly type: 'begin'
      readonly coordinatorUrl: string
      /** code of the link by which the visitor came */
      readonly invite: string | undefined
      readonly control: MessagePort
    })
  | { readonly type: 'stop' }
  /** the page was covered or put away, or is seen again */
  | { readonly type: 'hidden'; readonly hidden: boolean }
  /** answers to open-peers */
  | { readonly type: 'peers-open' }
  | { readonly type: 'peers-failed'; readonly failure: Failure }

export type FromWorker =
  | { readonly type: 'status'; readonly status: VolunteerStatus }
  /** another coordinator has the job: the page goes there and lends on */
  | { readonly type: 'elsewhere'; readonly url: string; readonly job: JobId | null }
  /** open the network and serve it on `port` */
  | {
      readonly type: 'open-peers'
      readonly access: Omit<SignallingAccess, 'identity'>
      /** the window makes the signer of it */
      readonly identity: Omit<LinkIdentity, 'signer'> & { readonly privateKey: CryptoKey }
      readonly port: MessagePort
    }
  /** last; null: the run finished or stop() was called */
  | { readonly type: 'ended'; readonly failure: Failure | null }

export interface Failure {
  /** of the protocol's table, or 'internal' for a bug */
  readonly code: string
  readonly message: string
}

export function failureOf(error: unknown): Failure {
  return {
    code: isGridError(error) ? error.code : 'internal',
    message: isGridError(error) ? error.message : describeError(error),
  }
}
