// Whether more volunteers would shorten a training, measured from what they push (noise-scale.ts). Volatile: a
// restarted coordinator measures anew.
import type { RunView } from '@starling-grid/protocol'
import {
  type Contribution,
  enoughVolunteers,
  NO_ESTIMATE,
  type NoiseEstimate,
  noiseScale,
  withVersion,
} from '../policy/noise-scale.ts'
import { own, type RunInput, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'

declare module '../state.ts' {
  interface Slices {
    crowd: CrowdOfUse
  }
}

export interface CrowdOfUse {
  estimate: NoiseEstimate
  /** of the open sum */
  open: Contribution[]
  /** of the version that the server makes now; undefined: none */
  closed: { readonly v: number; readonly contributions: readonly Contribution[] } | undefined
  /** samples of a contribution, as usual */
  samples: number
}

/** Weight of the newest version. */
const NEWEST_WEIGHT = 0.1
/** Fewer volunteers are never too many. */
const LEAST_CROWD = 4

export const crowd = {
  initial: () => ({ crowd: { estimate: NO_ESTIMATE, open: [], closed: undefined, samples: 0 } }),
  on: { 'server-closed': onClosed },
  rewound: ({ state }) => {
    own(state, 'crowd').closed = undefined
  },
} satisfies Aspect

/** A push joins the open sum. */
export function contributed(state: RunState, contribution: Contribution): void {
  own(state, 'crowd').open.push(contribution)
}

/** The open sum becomes version v. */
export function closeContributions(state: RunState, v: number): void {
  const slice = own(state, 'crowd')
  slice.closed = { v, contributions: slice.open }
}

/** The open sum is taken elsewhere, or dropped. */
export function dropContributions(state: RunState): void {
  own(state, 'crowd').open = []
}

/** The server made it: its mean had this norm. */
function onClosed({ state }: Transition, { version: { v }, norm }: Extract<RunInput, { type: 'server-closed' }>): void {
  const slice = own(state, 'crowd')
  if (slice.closed?.v !== v || !Number.isFinite(norm)) return
  const { contributions } = slice.closed
  slice.closed = undefined
  slice.estimate = withVersion(slice.estimate, contributions, norm)
  const samples = contributions.reduce((sum, one) => sum + one.samples, 0) / Math.max(1, contributions.length)
  slice.samples += (slice.samples === 0 ? 1 : NEWEST_WEIGHT) * (samples - slice.samples)
}

/** Volunteers whose contributions together make up the noise scale; undefined: not measured. */
export function criticalCrowd({ crowd: { estimate, samples }, phase }: RunState): number | undefined {
  const scale = phase.type === 'async' && samples > 0 ? noiseScale(estimate) : undefined
  return scale === undefined ? undefined : scale / samples
}

/** Volunteers that would train as fast as all that are here; undefined: more are of use, or it is not known. */
export function enoughOf(state: RunState): number | undefined {
  const critical = criticalCrowd(state)
  const { size } = state.members
  if (critical === undefined || size < LEAST_CROWD) return undefined
  const enough = enoughVolunteers(critical, size)
  return enough < size ? enough : undefined
}

/** For the owner and the volunteers; undefined: more are of use, or it is not known. */
export function crowdView(state: RunState): RunView['crowd'] {
  const enough = enoughOf(state)
  const scale = noiseScale(state.crowd.estimate)
  return enough === undefined || scale === undefined ? undefined : { enough, noiseScale: scale }
}
