// The encoding in use of a run whose job says `auto`, and what validations said of it. FORM names it to all members of
// a generation, and a grant to the member of a round. Volatile: a restarted coordinator begins with the finest.
import type { GradientEncoding } from '@starling-grid/protocol'
import { own, type RunState } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { type EncodingChoice, type EncodingRung, type LossWatch, UNWATCHED, watchLoss } from './encoding-choice.ts'

declare module '../state.ts' {
  interface Slices {
    encoding: EncodingInUse
  }
}

export interface EncodingInUse {
  choice: EncodingChoice
  /** of the next generation: the ring ends for it */
  next: EncodingChoice | undefined
  watch: LossWatch
}

export const encoding = {
  initial: () => ({ encoding: { choice: { encoding: 'f32', reason: '' }, next: undefined, watch: UNWATCHED } }),
  advance: watch,
} satisfies Aspect

/** What travels now; undefined: as the job says. */
export function encodingNow({ config, encoding: { choice } }: RunState): GradientEncoding | undefined {
  return config.encodings === undefined ? undefined : choice.encoding
}

/** Bytes of what travels now. */
export function bytesNow(state: RunState): Pick<EncodingRung, 'bytes' | 'roundBytes'> {
  const { config } = state
  const rung = config.encodings?.[indexOf(state, state.encoding.choice.encoding)]
  return rung ?? { bytes: config.exchange.bytes, roundBytes: config.roundBytes }
}

/** The same one; what speaks for it is of now. */
export function keepEncoding(state: RunState, choice: EncodingChoice): void {
  Object.assign(own(state, 'encoding'), { choice, next: undefined })
}

/** From the next generation on, which has no measurements of its own yet. */
export function wantEncoding(state: RunState, next: EncodingChoice): void {
  own(state, 'encoding').next = next
}

/** The one in use made the loss rise. */
export function isBarred(state: RunState): boolean {
  const { choice, watch: losses } = state.encoding
  return indexOf(state, choice.encoding) >= losses.barred
}

function watch({ state }: Transition): void {
  const { encodings } = state.config
  const newest = state.evaluations.at(-1)
  if (encodings === undefined || newest === undefined || newest.version.v === state.encoding.watch.seen) return
  if (!newest.confirmed) return
  const slice = own(state, 'encoding')
  const { encoding: used } = slice.choice
  const rung = { index: indexOf(state, used), encoding: used }
  slice.watch = watchLoss(slice.watch, { loss: newest.loss, seen: newest.version.v }, rung)
}

/** Place of an encoding among those of the run. */
function indexOf({ config }: RunState, used: GradientEncoding): number {
  return config.encodings?.findIndex(({ encoding: one }) => one === used) ?? -1
}
