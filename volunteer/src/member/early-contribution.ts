// Whether a piece of this member's gradient may enter the ring before the rest of it is computed (R9). Pure.
import type { MemberCore, Generation } from './member-state.ts'

export interface StepInFlight extends Pick<MemberCore, 'promised' | 'version'> {
  readonly ring:
    | (Pick<Generation, 'generation' | 'stage'> & {
        readonly flight: Pick<NonNullable<Generation['flight']>, 'step' | 'stage'> | undefined
      })
    | undefined
}

/**
 * The premise of R9 held when the step began: START of the promised generation, and the version before it held whole.
 * It still does while that step is in flight: the version changes at its end only, and a ballot ends the flight (R3).
 */
export function mayContributeEarly(
  { ring, promised, version }: StepInFlight,
  generation: number,
  step: number,
): boolean {
  const isInFlight =
    ring?.generation === generation &&
    promised === generation &&
    ring.stage === 'running' &&
    ring.flight?.step === step &&
    ring.flight.stage === 'computing'
  return isInFlight && version?.v === step - 1
}
