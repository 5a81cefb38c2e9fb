// What a run is made of. A feature is a row. It has a part of the state, the inputs that it takes, what it does with
// time, and why the ring must wait. The order of the rows is their priority.
import { accumulator } from './async/accumulator.ts'
import { asyncMode } from './async/async.ts'
import { crowd } from './async/crowd.ts'
import { leases } from './async/leases.ts'
import { pushNorms } from './async/push-norms.ts'
import { ballot } from './ballot/ballot.ts'
import { derivedStates } from './ballot/derived-state.ts'
import { dispute } from './ballot/dispute.ts'
import { dissent } from './ballot/dissent.ts'
import { handover } from './ballot/handover.ts'
import { proofs } from './ballot/proofs.ts'
import { promises } from './ballot/restored.ts'
import { stranded } from './ballot/stranded.ts'
import { unreached } from './ballot/unreached.ts'
import { dataParts } from './groups/data-parts.ts'
import { rounds } from './groups/round-length.ts'
import { versionSources } from './groups/version-sources.ts'
import { checkpoints } from './history/checkpoints.ts'
import { completion } from './history/completion.ts'
import { damagedCheckpoint } from './history/damaged-checkpoint.ts'
import { digests } from './history/digests.ts'
import { keeping } from './history/keeping.ts'
import { trainingTime } from './history/training-time.ts'
import { validation } from './history/validation.ts'
import { encoding } from './policy/encoding-now.ts'
import { forecast } from './policy/forecast.ts'
import { appended } from './queue/appended.ts'
import { pause, quarantine } from './queue/quarantine.ts'
import { suspects } from './queue/suspects.ts'
import { admissions } from './ring/admissions.ts'
import { inert } from './ring/inert.ts'
import { learners } from './ring/learners.ts'
import { membership } from './ring/membership.ts'
import { newcomers } from './ring/newcomer.ts'
import { offRing } from './ring/off-ring.ts'
import { parking } from './ring/parking.ts'
import { rebalance } from './ring/rebalance.ts'
import { ring } from './ring/ring.ts'
import { stalls } from './ring/stalls.ts'
import { weakScaling } from './ring/weak-scaling.ts'
import type { RunState, Slices } from './state.ts'
import type { Aspect } from './transition.ts'

const ROWS = [
  trainingTime,
  quarantine,
  suspects,
  weakScaling,
  parking,
  membership,
  inert,
  appended,
  derivedStates,
  ballot,
  unreached,
  stranded,
  promises,
  accumulator,
  dataParts,
  crowd,
  checkpoints,
  digests,
  dissent,
  damagedCheckpoint,
  handover,
  stalls,
  dispute,
  rebalance,
  offRing,
  learners,
  proofs,
  newcomers,
  admissions,
  pushNorms,
  rounds,
  versionSources,
  validation,
  keeping,
  completion,
  pause,
  leases,
  forecast,
  asyncMode,
  ring,
  encoding,
] as const

export const ASPECTS: readonly Aspect[] = ROWS

type Initial = Extract<(typeof ROWS)[number], { readonly initial: unknown }>['initial']
type All<T> = (T extends unknown ? (one: T) => void : never) extends (all: infer A) => void ? A : never
/** A slice without a row does not compile. */
type Made = All<ReturnType<Initial>>

export function initialSlices(): Pick<RunState, keyof Slices> {
  const made: Made = Object.assign({}, ...ROWS.map((row: Aspect) => row.initial?.() ?? {}))
  return made satisfies Slices
}
