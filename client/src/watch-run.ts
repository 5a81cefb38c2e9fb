// A run as it goes on: its steps and events to its end, over broken connections and restarts of the coordinator.
import { setTimeout as delay } from 'node:timers/promises'
import {
  describeError,
  parse,
  type RunEvent,
  RunEventSchema,
  type RunView,
  type StepPoint,
  StepPointSchema,
} from '@starling-grid/protocol'
import { type CoordinatorApi, isPassing, piecesOf } from './coordinator-api.ts'
import { type SentEvent, sentEvents } from './sent-events.ts'

/** ms without a byte after which a stream is opened anew: the coordinator sends some every 15 s */
const SILENCE_MS = 45_000
/** ms between tries while the coordinator is away: doubled from the first, at most the second, with full jitter */
const FIRST_WAIT_MS = 500
const MOST_WAIT_MS = 10_000
const NO_CONTENT = 204

/** `step`: the newest committed one, twice a second at most. `end`: the last update, with the run as it ended. */
export type JobUpdate =
  | { readonly type: 'step'; readonly step: StepPoint }
  | { readonly type: 'event'; readonly event: RunEvent }
  | { readonly type: 'end'; readonly run: RunView }

export interface WatchOptions {
  /** ends the watch, with its reason */
  readonly signal?: AbortSignal
  /** the coordinator does not answer, and is asked again; why */
  readonly onAway?: (why: string) => void
}

/**
 * Each event once, the oldest first, up to the end of the run. A coordinator that is away is asked again.
 * @throws GridError what the coordinator refuses for good: a token that is over, a job that is deleted
 */
export async function* watchRun(
  api: CoordinatorApi,
  id: string,
  { signal, onAway }: WatchOptions = {},
): AsyncGenerator<JobUpdate> {
  let last: string | undefined
  for (let failures = 0; ; failures++) {
    if (failures > 0) await pause(waitMs(failures), signal)
    const attempt = new WatchAttempt(signal)
    try {
      const response = await api.eventStream(id, { last, signal: attempt.signal })
      if (response.status === NO_CONTENT) return yield { type: 'end', run: await api.run(id) }
      for await (const sent of sentEvents(attempt.watched(piecesOf(response)))) {
        failures = 0
        last = sent.id ?? last
        yield updateIn(sent)
      }
    } catch (error) {
      signal?.throwIfAborted()
      if (!isPassing(error)) throw error
      onAway?.(describeError(error))
    } finally {
      attempt.end()
    }
  }
}

/** @throws GridError 'message-malformed' */
function updateIn({ type, data }: SentEvent): JobUpdate {
  const value: unknown = JSON.parse(data)
  return type === 'step'
    ? { type: 'step', step: parse(StepPointSchema, value, 'a step of the stream') }
    : { type: 'event', event: parse(RunEventSchema, value, 'an event of the stream') }
}

function waitMs(failures: number): number {
  return Math.random() * Math.min(MOST_WAIT_MS, FIRST_WAIT_MS * 2 ** failures)
}

/** One stream: given up when nothing comes for a while, or when the caller's signal says so. */
class WatchAttempt {
  readonly #over = new AbortController()
  readonly signal: AbortSignal
  #timer: NodeJS.Timeout

  constructor(outer: AbortSignal | undefined) {
    this.signal = outer === undefined ? this.#over.signal : AbortSignal.any([outer, this.#over.signal])
    this.#timer = this.#awaitByte()
  }

  async *watched(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const piece of pieces) {
      clearTimeout(this.#timer)
      this.#timer = this.#awaitByte()
      yield piece
    }
  }

  end(): void {
    clearTimeout(this.#timer)
    this.#over.abort()
  }

  #awaitByte(): NodeJS.Timeout {
    return setTimeout(() => this.#over.abort(new Error(`nothing came for ${SILENCE_MS / 1000} s`)), SILENCE_MS)
  }
}

/** @throws the signal's reason */
async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await delay(ms, undefined, signal === undefined ? {} : { signal }).catch(() => undefined)
  signal?.throwIfAborted()
}
