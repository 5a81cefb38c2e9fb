// What happened, newest first.
import type { RunEvent } from '@starling-grid/protocol'
import { clockTime } from '../format.ts'

/** Enough to see a minute of churn; the list scrolls inside. */
const MOST_EVENTS = 200

export function Events(props: { readonly events: readonly RunEvent[] }) {
  const newest = props.events.slice(-MOST_EVENTS).reverse()
  return (
    <section class="events" aria-label="Events">
      <h2>Events</h2>
      {newest.length === 0 && <p class="soft">No events yet.</p>}
      <ol class="scroll" tabIndex={0}>
        {newest.map((event, i) => (
          <li key={props.events.length - i} class={event.kind}>
            <time>{clockTime(event.at)}</time>
            <span class="kind">{event.kind}</span>
            <span class="text">{event.text}</span>
          </li>
        ))}
      </ol>
    </section>
  )
}
