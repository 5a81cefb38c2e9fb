// One question to the model of scale: how many volunteers, of what kind, how restless, training what.
import type { AsyncPolicy, WeakScaling } from '@starling-grid/coordinator/run'
import type { Exchange, Mode } from '@starling-grid/protocol'
import type { LinkProfile, MachineProfile } from './profiles.ts'

/** What a step moves and computes. */
interface StepSetting {
  /** bytes of the gradient as f32 and as members exchange it, and of a whole state with its optimizer */
  readonly gradientBytes: number
  readonly exchangeBytes: number
  readonly stateBytes: number
  /** bytes of a push, and of the version that it starts from, in async mode; absent: of a gradient as f32 */
  readonly pushBytes?: number
  readonly pullBytes?: number
  /**
   * ms in which the coordinator takes one push in, and does nothing else that a member waits for; absent: none, as
   * where pushes are few
   */
  readonly addMs?: number
  readonly batchBlocks: number
  /** of an epoch; absent: more than any run of the model uses up */
  readonly blocks?: number
  /** of them that lie in one shard; absent: 1 */
  readonly shardBlocks?: number
  /** of such a shard; absent: data costs no time */
  readonly shardBytes?: number
  /** `batchBlocks` are of each member; absent: of all */
  readonly weak?: WeakScaling
  readonly blockSamples: number
  /** ms of a member's step beside its samples: dispatches, the gradient's read-back, the exact update */
  readonly stepMs: number
}

export interface Setting extends StepSetting {
  readonly volunteers: number
  readonly links: LinkProfile
  readonly machines: MachineProfile
  /** share of all volunteers that goes in one minute, each replaced by a newcomer; half of them without a farewell */
  readonly churnPerMinute: number
  readonly mode: 'auto' | Mode
  /** which way gradients take; auto: chosen by what was measured, as the coordinator does */
  readonly exchange: 'auto' | Exchange
  /** global batches of a step: more than one in local rounds */
  readonly roundSteps: number
  /** training starts when this many are ready */
  readonly minVolunteers: number
  readonly async: AsyncPolicy
  /** virtual seconds that are measured, after those that let the grid form */
  readonly warmUpSeconds: number
  readonly seconds: number
  readonly seed: number
}

export function pushBytesOf({ pushBytes, gradientBytes }: Setting): number {
  return pushBytes ?? gradientBytes
}

export function pullBytesOf({ pullBytes, gradientBytes }: Setting): number {
  return pullBytes ?? gradientBytes
}

export interface ScalePrediction {
  readonly samplesPerSecond: number
  /** what a sample of these counts on average: below 1 where pushes come too late for their version */
  readonly weight: number
  /** share of virtual time in ring mode */
  readonly ringShare: number
  readonly ringSize: number
  /** share of the time in ring mode in which gradients went from each member to each */
  readonly directShare: number
  readonly ballotsPerMinute: number
  /** cores of this machine that the coordinator's decisions and messages take, and its bytes per second */
  readonly coordinatorCores: number
  readonly coordinatorBytesPerSecond: number
  readonly mode: string
  /** of a setting that says what lies in a shard: how much data members fetch */
  readonly shards?: FetchedShards
}

export interface FetchedShards {
  /** different ones of one grant, and of all grants of one member, on average */
  readonly ofGrant: number
  readonly ofMember: number
  /** of the dataset */
  readonly all: number
}

/** Of a whole training. */
export interface Forecast extends Omit<
  ScalePrediction,
  'samplesPerSecond' | 'weight' | 'coordinatorCores' | 'coordinatorBytesPerSecond' | 'shards'
> {
  /** from the first computation to the last commit; and without the first step, which waits for all to link */
  readonly seconds: number
  readonly secondsAfterFirst: number
  readonly samplesPerSecond: number
  /** of the volunteer that sends most, and of the one that receives most, with states and without data */
  readonly bytesUp: number
  readonly bytesDown: number
}
