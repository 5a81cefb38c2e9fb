// The WebSocket /api/watch, which sends one `snapshot` of the run on show and then `update`s at most twice a second.
import * as Type from 'typebox'
import type { RunEvent, RunView, StepPoint, ValidationPoint } from './run-view.ts'
import { strict } from './schema.ts'

/** Characters of an owner's token. */
const MAX_TOKEN_LENGTH = 1000

/** The one message that a page may send, as its first: the owner's token. It is in no address, so in no log. */
export const WatchTokenSchema = strict({
  type: Type.Literal('owner'),
  token: Type.String({ maxLength: MAX_TOKEN_LENGTH }),
})

export type WatchMessage =
  /** `at`: the coordinator that has the job; the page goes there */
  | { readonly type: 'none'; readonly reason: string; readonly at?: { readonly url: string; readonly job: string } }
  | {
      readonly type: 'snapshot'
      readonly run: RunView
      readonly steps: readonly StepPoint[]
      readonly validations: readonly ValidationPoint[]
      readonly events: readonly RunEvent[]
    }
  /** points and events since the last message; `rewoundTo`: drop points above this v first */
  | {
      readonly type: 'update'
      readonly run: RunView
      readonly steps: readonly StepPoint[]
      readonly validations: readonly ValidationPoint[]
      readonly events: readonly RunEvent[]
      readonly rewoundTo?: number
    }
