// Messages between the processes of newcomer-ring.ts and their parent.

/** Bytes of the state that the newcomer fetches. */
export const STATE_BYTES = 16e6

export type NewcomerRingOrder =
  /** members: be ready for the frames of generation `generation` */
  | { readonly type: 'prepare'; readonly generation: number }
  /** members: make so many steps of it */
  | { readonly type: 'steps'; readonly generation: number; readonly count: number }
  /** newcomer: fetch the state under a name that was not used yet */
  | { readonly type: 'fetch'; readonly version: number }
  | { readonly type: 'leave' }

/** ms of each step, or of the fetch */
export type NewcomerRingAnswer = { readonly times: readonly number[] } | { readonly error: string }
