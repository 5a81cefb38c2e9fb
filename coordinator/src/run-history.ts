// What people are shown of a run's past: made from journal rows that are durable, live and after a restart alike, so
// that nothing that was shown is lost with the process. The events are notes beside it.
import {
  epochOf,
  type MemberId,
  plainText,
  type RunEvent,
  type DepartureView,
  type StepPoint,
  type StepRecord,
  type ValidationPoint,
} from '@starling-grid/protocol'
import type { JournalRow } from './journal/state-store.ts'
import type { RunState } from './run/state.ts'
import { summary, validationBlocks } from './run/validation.ts'

const MAX_EVENTS = 500
const MAX_DEPARTURES = 50
/** characters: a refusal quotes what came */
const MAX_EVENT_LENGTH = 500

const MODE_OF = { ring: 'ring', round: 'local', async: 'async' } as const

export class RunHistory {
  /** records[v − 1] led to version v, steps[v − 1] is its point */
  readonly records: StepRecord[] = []
  readonly steps: StepPoint[] = []
  readonly validations: ValidationPoint[] = []
  readonly events: RunEvent[] = []
  readonly departed: DepartureView[] = []
  /** events ever noted; the newest of `events` has the number eventCount − 1 */
  eventCount = 0
  /** versions that rewinds went back to, oldest first: watchers drop what they know above them */
  readonly rewinds: number[] = []
  startedAt: number | undefined
  finishedAt: number | undefined
  #samples = 0

  get samplesCommitted(): number {
    return this.#samples
  }

  /** `state` has the row applied already, and perhaps later ones. */
  observe(state: RunState, { entry, at }: JournalRow): void {
    this.startedAt ??= at
    switch (entry.type) {
      case 'start':
      case 'commit':
        return this.#committed(entry.records, at)
      case 'validated':
        return this.#validated(state, entry.version, at)
      case 'rewind':
        return this.#rewound(entry.to.v)
      case 'finished':
        this.finishedAt = at
        return
      default:
    }
  }

  note(kind: RunEvent['kind'], text: string, at: number): void {
    this.events.push({ at, kind, text: plainText(text).slice(0, MAX_EVENT_LENGTH) })
    this.eventCount++
    if (this.events.length > MAX_EVENTS) this.events.shift()
  }

  left(
    member: { readonly id: MemberId; readonly name: string },
    why: { readonly reason: string; readonly expected: boolean },
    at: number,
  ): void {
    this.departed.push({ id: member.id, name: member.name, at, reason: why.reason, expected: why.expected })
    if (this.departed.length > MAX_DEPARTURES) this.departed.shift()
  }

  #committed(records: readonly StepRecord[], at: number): void {
    for (const record of records) {
      this.records.push(record)
      this.steps.push(stepPoint(record, at))
      this.#samples += record.samples
    }
  }

  /** A point when the last block of the version is in. */
  #validated(state: RunState, { v, id }: { readonly v: number; readonly id: string }, at: number): void {
    if (
      (state.validated.get(id)?.size ?? 0) < validationBlocks(state) ||
      this.validations.some((point) => point.v === v)
    )
      return
    const { samples, accuracy, loss, confirmed } = summary(state, id)
    const block = this.records[v - 1]?.blocks[0]
    this.validations.push({
      v,
      epoch: block === undefined ? 0 : epochOf(block),
      accuracy,
      loss,
      samples,
      confirmed,
      at,
    })
  }

  #rewound(v: number): void {
    for (const { samples } of this.records.splice(v)) this.#samples -= samples
    this.steps.splice(v)
    const kept = this.validations.filter((point) => point.v <= v)
    this.validations.splice(0, this.validations.length, ...kept)
    this.rewinds.push(v)
  }
}

function stepPoint({ v, lossSum, correct, samples, targets, kind }: StepRecord, at: number): StepPoint {
  return {
    v,
    loss: lossSum / Math.max(1, targets),
    accuracy: correct / Math.max(1, targets),
    samples,
    mode: MODE_OF[kind],
    at,
  }
}

/** What the journal tells of the time before a restart, as events. */
export function eventOf({ entry, at }: JournalRow, isFirst: boolean): RunEvent | undefined {
  switch (entry.type) {
    case 'owner':
      return { at, kind: 'run', text: isFirst ? 'the run began' : 'the coordinator started again' }
    case 'start':
      return { at, kind: 'generation', text: `generation ${entry.gen} of ${entry.members.length} started` }
    case 'checkpoint':
      return { at, kind: 'checkpoint', text: `checkpoint of version ${entry.version.v}` }
    case 'rewind':
      return { at, kind: 'rewind', text: `back to checkpoint ${entry.to.v}` }
    case 'mode':
      return { at, kind: 'mode', text: `${entry.mode}: ${entry.reason}` }
    case 'finished':
      return { at, kind: 'run', text: entry.reason }
    default:
      return undefined
  }
}
