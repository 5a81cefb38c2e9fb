// What is known of a newcomer: how near it is to the head, and what it showed (R2). Its two keepers are learners.ts and
// proofs.ts.
import type { MemberId, Sha256, VersionRef } from '@starling-grid/protocol'
import { type DeepReadonly, own, type RunState } from '../state.ts'
import type { Aspect } from '../transition.ts'

declare module '../state.ts' {
  interface Slices {
    newcomers: Map<MemberId, Newcomer>
  }
}

export interface Newcomer {
  /** joined while the ring ran, and catches up beside it */
  learner: Learner | undefined
  /** showed that it holds the state: a ballot may take it in (R2) */
  proven: boolean
  proof: ProofAsked | undefined
  /** proofs that failed, and before when it is asked for no other, ms */
  failedProofs: number
  proveAfter: number
  /** members did not settle its proof: the checkpoint does */
  byCheckpoint: boolean
}

/** What a newcomer is on its way to. */
export interface Learner {
  readonly since: number
  /** nothing more to wait for: it cannot fetch while the ring runs, and its state comes at FORM */
  ready: boolean
  /** the committed version that it said to hold */
  held: number | undefined
  /** the version from which it could not go on, since no member keeps the steps: a copy has to be newer */
  lost: number
  /** times in a row that it could not go on */
  losses: number
  /** when it was told to fetch a version, and how long that took, ms */
  fetchAt: number
  fetchMs: number | undefined
  /** when it last said what it holds, was told everything again, or got records to follow after it had none, ms */
  newsAt: number
  /** how long it takes to follow one record, ms */
  stepMs: number | undefined
  /** records that it was told, up to this version, in the generation `generation` */
  told: number
  generation: number
  /** the generation in which its sources were told of it, and these sources: they answer no other member's offer */
  met: { readonly generation: number; readonly sources: readonly MemberId[] } | undefined
}

/** What a newcomer was asked to prove, in the generation `generation`. */
export interface ProofAsked {
  readonly generation: number
  readonly v: number
  readonly salt: Sha256
  readonly peers: readonly MemberId[]
  /** the checkpoint that decides; undefined: members that keep a copy */
  readonly checkpoint: VersionRef | undefined
  /** what it answered, and when, ms; null: it does not hold the version */
  answer: { readonly digest: Sha256 | null; readonly at: number } | undefined
  /** digests of members that keep a copy */
  readonly voices: Map<MemberId, Sha256>
  /** the checkpoint's digest */
  known: Sha256 | undefined
}

export const newcomers = {
  initial: () => ({ newcomers: new Map() }),
  memberLost: ({ state }, { id }) => void own(state, 'newcomers').delete(id),
} satisfies Aspect

const UNKNOWN: DeepReadonly<Newcomer> = unknown()

function unknown(): Newcomer {
  return {
    learner: undefined,
    proven: false,
    proof: undefined,
    failedProofs: 0,
    proveAfter: 0,
    byCheckpoint: false,
  }
}

export function known({ newcomers }: RunState, id: MemberId): DeepReadonly<Newcomer> {
  return newcomers.get(id) ?? UNKNOWN
}

/** Of a member that is here, to be changed. */
export function newcomer(state: RunState, id: MemberId): Newcomer {
  const all = own(state, 'newcomers')
  const one = all.get(id) ?? unknown()
  all.set(id, one)
  return one
}
