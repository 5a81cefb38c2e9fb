// Pages of lists that grow: cut behind a place, which stays valid when items come and go.
import { MAX_PAGE } from '@starling-grid/protocol'

/** Where an item stands in its list. */
export interface Place {
  /** ms: the oldest come first */
  readonly at: number
  /** tells items of the same moment apart; numbers in their order */
  readonly id: string
}

export interface Page<T> {
  readonly items: readonly T[]
  /** text of the place of its last item; null: the list ends here */
  readonly next: string | null
}

export function placeText({ at, id }: Place): string {
  return `${at}-${id}`
}

/** The place that `placeText` wrote. */
export function placeIn(text: string): Place {
  const end = text.indexOf('-')
  return { at: Number(text.slice(0, end)), id: text.slice(end + 1) }
}

/** Below 0: `a` comes first. */
export function comparePlaces(a: Place, b: Place): number {
  if (a.at !== b.at) return a.at - b.at
  if (a.id.length !== b.id.length) return a.id.length - b.id.length
  if (a.id === b.id) return 0
  return a.id < b.id ? -1 : 1
}

export function pageOf<T>(
  items: readonly T[],
  placeOf: (item: T) => Place,
  { limit = MAX_PAGE, after }: { readonly limit?: number | undefined; readonly after?: string | undefined },
): Page<T> {
  const begin = after === undefined ? undefined : placeIn(after)
  const rest = items
    .map((item) => ({ item, place: placeOf(item) }))
    .filter(({ place }) => begin === undefined || comparePlaces(place, begin) > 0)
    .sort((a, b) => comparePlaces(a.place, b.place))
  const page = rest.slice(0, limit)
  const last = page.at(-1)
  return {
    items: page.map(({ item }) => item),
    next: last === undefined || rest.length === page.length ? null : placeText(last.place),
  }
}
