// Which events of a run are kept where there is no room for all: strangers can raise some kinds as often as they like.
import type { RunEvent } from './run-view.ts'

/**
 * At most `most` of these events, in their order. The kind that has most gives up its oldest, so that no kind takes the
 * place of all others.
 */
export function fittingEvents<E extends Pick<RunEvent, 'kind'>>(events: readonly E[], most: number): readonly E[] {
  const left = new Map<RunEvent['kind'], number>()
  for (const { kind } of events) left.set(kind, (left.get(kind) ?? 0) + 1)
  const gone = new Map<RunEvent['kind'], number>()
  for (let surplus = events.length - most; surplus > 0; surplus--) {
    const [kind, count] = [...left].reduce((largest, one) => (one[1] > largest[1] ? one : largest))
    left.set(kind, count - 1)
    gone.set(kind, (gone.get(kind) ?? 0) + 1)
  }
  if (gone.size === 0) return events
  return events.filter(({ kind }) => {
    const still = gone.get(kind) ?? 0
    if (still > 0) gone.set(kind, still - 1)
    return still === 0
  })
}
