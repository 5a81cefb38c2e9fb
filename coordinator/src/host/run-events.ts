// The events of a run that pages show: bounded, and numbered in the order in which they were noted.
import { fittingEvents, type RunEvent } from '@starling-grid/protocol'

const MAX_EVENTS = 500

interface NotedEvent extends Pick<RunEvent, 'kind'> {
  readonly number: number
  readonly event: RunEvent
}

export class RunEvents {
  #noted: readonly NotedEvent[] = []
  #list: readonly RunEvent[] = []
  /** events ever noted */
  count = 0

  /** Oldest first. */
  get list(): readonly RunEvent[] {
    return this.#list
  }

  note(event: RunEvent): void {
    this.#keep([...this.#noted, { number: this.count++, kind: event.kind, event }])
  }

  /** Those that were noted after so many, as far as they are kept. */
  since(count: number): readonly RunEvent[] {
    return this.#noted.filter(({ number }) => number >= count).map(({ event }) => event)
  }

  clear(): void {
    this.#keep([])
  }

  #keep(noted: readonly NotedEvent[]): void {
    this.#noted = fittingEvents(noted, MAX_EVENTS)
    this.#list = this.#noted.map(({ event }) => event)
  }
}
