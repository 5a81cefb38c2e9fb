// The body of a push: its gradient, checked, and the digest of its bytes. In pieces: it may have 256 MiB.
import { type GradientForm, type ParameterLayout, type PushedGradient, readingPush } from '@starling-grid/model'
import { type Clock, type Sha256, sha256Name } from '@starling-grid/protocol'
import { hashing, inTurns } from '../turns.ts'

export interface PushBody {
  readonly gradient: PushedGradient
  /** SHA-256 of all bytes */
  readonly digest: Sha256
}

export interface PushShape {
  readonly form: GradientForm
  /** of the model */
  readonly layout: Pick<ParameterLayout, 'trained'>
}

/** @throws GridError 'gradient-shape', 'gradient-not-finite', 'message-malformed' */
export function readPushBody(body: Uint8Array, shape: PushShape, clock: Pick<Clock, 'sleep'>): Promise<PushBody> {
  return inTurns(readingBody(body, shape), clock)
}

function* readingBody(body: Uint8Array, { form, layout }: PushShape): Generator<undefined, PushBody> {
  const gradient = yield* readingPush(body, form, layout.trained)
  return { gradient, digest: sha256Name(yield* hashing(body)) }
}
