// One question to the model of scale: how many volunteers, of what kind, how restless, training what.
import type { Exchange } from '@starling-grid/protocol'
import type { LinkProfile, MachineProfile } from './profiles.ts'

export interface Setting {
  readonly volunteers: number
  readonly links: LinkProfile
  readonly machines: MachineProfile
  /** share of all volunteers that goes in one minute, each replaced by a newcomer; half of them without a word */
  readonly churnPerMinute: number
  readonly mode: 'auto' | 'ring' | 'async'
  /** which way gradients take; auto: chosen by what was measured, as the coordinator does */
  readonly exchange: 'auto' | Exchange
  /** bytes of the gradient, and of a whole state with its optimizer */
  readonly gradientBytes: number
  readonly stateBytes: number
  readonly batchBlocks: number
  readonly blockSamples: number
  /** virtual seconds that are measured, after those that let the grid form */
  readonly warmUpSeconds: number
  readonly seconds: number
  readonly seed: number
}

export interface ScalePrediction {
  readonly samplesPerSecond: number
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
}
