// What is known of a run so far, folded from the watch stream. Pure: a reload begins again from the snapshot.
import {
  fittingEvents,
  type RunEvent,
  type RunView,
  type StepPoint,
  type ValidationPoint,
  type WatchMessage,
} from '@starling-grid/protocol'

/** Events kept for the list; older ones are in the coordinator's journal. */
const MAX_EVENTS = 500

export interface PageHistory {
  /** null: no message yet, or no job */
  readonly run: RunView | null
  /** why there is no run, once the coordinator said so */
  readonly noRun: string | null
  /** ascending by v, each v once */
  readonly steps: readonly StepPoint[]
  readonly validations: readonly ValidationPoint[]
  /** oldest first */
  readonly events: readonly RunEvent[]
}

export const EMPTY_HISTORY: PageHistory = { run: null, noRun: null, steps: [], validations: [], events: [] }

export function applyWatch(history: PageHistory, message: WatchMessage): PageHistory {
  switch (message.type) {
    case 'none':
      return { ...EMPTY_HISTORY, noRun: message.reason }
    case 'snapshot':
      return grown(EMPTY_HISTORY, message)
    case 'update':
      return grown(message.rewoundTo === undefined ? history : rewound(history, message.rewoundTo), message)
    default:
      return message satisfies never
  }
}

function grown(history: PageHistory, news: Extract<WatchMessage, { type: 'snapshot' | 'update' }>): PageHistory {
  return {
    run: news.run,
    noRun: null,
    steps: appended(history.steps, news.steps.map(readable)),
    validations: appended(history.validations, news.validations.map(readable)),
    events: fittingEvents([...history.events, ...news.events], MAX_EVENTS),
  }
}

/** JSON has no NaN and no infinity: they arrive as null, although the type says number. */
function readable<T extends { readonly loss: number; readonly accuracy: number }>(point: T): T {
  const number = (value: number | null): number => value ?? NaN
  return { ...point, loss: number(point.loss), accuracy: number(point.accuracy) }
}

/** A rewind took these versions back: they are off the chain, and so off the curve. */
function rewound(history: PageHistory, v: number): PageHistory {
  return {
    ...history,
    steps: history.steps.filter((point) => point.v <= v),
    validations: history.validations.filter((point) => point.v <= v),
  }
}

/** `points` replace what is known from their first v on. */
function appended<T extends { readonly v: number }>(present: readonly T[], points: readonly T[]): readonly T[] {
  const [first] = points
  if (first === undefined) return present
  const last = present.at(-1)
  const kept = last !== undefined && last.v >= first.v ? present.filter((point) => point.v < first.v) : present
  return [...kept, ...points]
}
