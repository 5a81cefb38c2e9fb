// The events of a run as server-sent events: first those that the reader lacks, then new ones as they come. The newest
// committed step is sent too, without an id. A reader that does not read is cut off, and comes back with the id of the
// last event that it had.
import type { RunEvent } from '@starling-grid/protocol'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { CoordinatorClock } from '../clock.ts'
import type { RunHost } from '../host/run-host.ts'
import { addressOf } from './addresses.ts'
import { comparePlaces, type Place, placeIn, placeText } from './paging.ts'
import { Seats } from './seats.ts'

/** ms between looks for new events, and between comments that keep proxies from closing the stream */
const LOOK_MS = 500
const HEARTBEAT_MS = 15_000
/** ms that a reader waits before it comes back */
const RETRY_MS = 2000
/** Streams at once, and of one address: as many as pages that watch. */
const MAX_STREAMS = 500
const MAX_PER_ADDRESS = 64
/** bytes that wait for one reader before it is cut off */
const MAX_BACKLOG_BYTES = 1024 * 1024
const MOST_OF_ONE_MS = 999_999

export interface StreamedRun {
  readonly run: RunHost
  /** ms since the epoch: a reader without the id of a last event begins here */
  readonly since: number
  /** asked at each look: a token may be over by then */
  readonly mayRead: () => boolean
}

interface NumberedEvent {
  /** `id`: how many events of that ms came before; the same after a restart */
  readonly place: Place
  readonly event: RunEvent
}

export class EventStreams {
  readonly #clock: CoordinatorClock
  readonly #seats = new Seats(MAX_STREAMS, MAX_PER_ADDRESS)

  constructor(clock: CoordinatorClock) {
    this.#clock = clock
  }

  /** @throws HttpRefusal 'rate-exceeded' */
  async open(request: FastifyRequest, reply: FastifyReply, { run, since, mayRead }: StreamedRun): Promise<unknown> {
    this.#seats.take(addressOf(request), reply)
    const { events: past } = await run.past()
    let last = String(request.headers['last-event-id'] ?? (since === 0 ? '' : `${since - 1}-${MOST_OF_ONE_MS}`))
    // A reader of the browser's kind comes back for ever unless it is told that nothing more comes.
    if (run.finished && after(numbered(past), last).length === 0) return reply.code(204).send()
    const { raw } = reply.hijack()
    const headers = { ...reply.getHeaders(), 'content-type': 'text/event-stream', 'cache-control': 'no-store' }
    raw.writeHead(200, headers as Record<string, string>)
    raw.write(`retry: ${RETRY_MS}\n\n`)
    let saidAt = this.#clock.awake()
    const say = (events: readonly RunEvent[]): void => {
      for (const { place, event } of after(numbered(events), last)) {
        const id = placeText(place)
        raw.write(`id: ${id}\nevent: ${event.kind}\ndata: ${JSON.stringify(event)}\n\n`)
        last = id
        saidAt = this.#clock.awake()
      }
    }
    let step: number | undefined
    const sayStep = (): void => {
      const { lastStep } = run.history
      if (lastStep === undefined || lastStep.v === step) return
      step = lastStep.v
      raw.write(`event: step\ndata: ${JSON.stringify(lastStep)}\n\n`)
      saidAt = this.#clock.awake()
    }
    say(past)
    sayStep()
    const stopLooking = this.#clock.every(LOOK_MS, () => {
      if (raw.writableLength > MAX_BACKLOG_BYTES) return void raw.destroy()
      if (!mayRead()) return void raw.end()
      if (run.finished && run.history.isReleased) {
        stopLooking()
        return void run.past().then(({ events }) => {
          sayStep()
          say(events)
          raw.end()
        })
      }
      sayStep()
      say(run.history.events)
      if (this.#clock.awake() - saidAt < HEARTBEAT_MS) return
      saidAt = this.#clock.awake()
      raw.write(': still here\n\n')
    })
    raw.once('close', stopLooking)
    return undefined
  }
}

/** Each with its place, which a stream has as its id. */
export function numbered(events: readonly RunEvent[]): NumberedEvent[] {
  let before: RunEvent | undefined
  let same = 0
  return events.map((event) => {
    same = before?.at === event.at ? same + 1 : 0
    before = event
    return { place: { at: event.at, id: String(same) }, event }
  })
}

/** Those behind the one with this id; all of them where it is no longer known. */
function after(events: readonly NumberedEvent[], last: string): readonly NumberedEvent[] {
  if (!/^\d{1,16}(\.\d{1,20})?-\d{1,6}$/.test(last)) return events
  const begin = placeIn(last)
  return events.filter(({ place }) => comparePlaces(place, begin) > 0)
}

/** Whether the caller asked for a stream instead of a list. */
export function wantsStream({ headers }: FastifyRequest): boolean {
  return (headers.accept ?? '').split(',').some((type) => type.trim().startsWith('text/event-stream'))
}
