// The past of a run as pages show it. It is made from durable journal rows, live and after a restart alike, so that a
// crash removes nothing that was shown. The events are notes beside it.
import {
  Count,
  epochOf,
  FiniteNumber,
  fittingEvents,
  type MemberId,
  parse,
  plainText,
  type ReadonlyOf,
  type RunEvent,
  type DepartureView,
  type StepPoint,
  type StepRecord,
  strict,
  type ValidationPoint,
  ValidationPointSchema,
  type VersionRef,
} from '@starling-grid/protocol'
import * as Type from 'typebox'
import type { JournalRow } from '../journal/state-store.ts'
import { derivedText } from '../run/ballot/derived-state.ts'
import { createRunState } from '../run/create.ts'
import { writtenRun } from '../run/history/snapshot.ts'
import { summary, validationBlocks } from '../run/history/validation.ts'
import { applyEntry, forgetPast } from '../run/journal-replay.ts'
import type { JournalEntry, RunConfig, RunState } from '../run/state.ts'
import { Curve } from './curve.ts'
import { RunEvents } from './run-events.ts'

const MAX_DEPARTURES = 50
/** characters: a refusal quotes what came */
const MAX_EVENT_LENGTH = 500
/** Rewinds that a page may have missed before it is told everything anew. */
const MAX_REWINDS = 64
/** Events that a snapshot of the journal keeps: a page's list after a restart. */
const WRITTEN_EVENTS = 100

const MODES = ['ring', 'local', 'async'] as const
const MODE_OF = { ring: 'ring', round: 'local', async: 'async' } as const

const WrittenHistorySchema = strict({
  samples: Count,
  startedAt: Type.Union([FiniteNumber, Type.Null()]),
  finishedAt: Type.Union([FiniteNumber, Type.Null()]),
  /** v, loss, accuracy, samples, place in MODES, at */
  steps: Type.Array(Type.Tuple([Count, FiniteNumber, FiniteNumber, Count, Count, FiniteNumber])),
  validations: Type.Array(strict(ValidationPointSchema.properties)),
  rewindCount: Count,
  events: Type.Array(strict({ at: FiniteNumber, kind: Type.String(), text: Type.String() })),
})
type WrittenHistory = ReadonlyOf<typeof WrittenHistorySchema>

/** What pages draw of a run's past. */
export interface Past {
  readonly steps: readonly StepPoint[]
  readonly validations: readonly ValidationPoint[]
  readonly events: readonly RunEvent[]
}

interface LastPoints {
  readonly step: StepPoint | undefined
  readonly validation: ValidationPoint | undefined
}

/** As the journal has it. @throws GridError 'journal-damaged' */
export function pastOf(config: RunConfig, rows: readonly JournalRow[]): Past {
  const history = new RunHistory(config)
  for (const row of rows) history.observe(row)
  history.noteRows(rows)
  return history
}

export class RunHistory implements Past {
  /** what a restart would find: the decisions may be ahead of it */
  readonly state: RunState
  /** the curve: its last points are all there, older ones are thinned */
  readonly #steps = new Curve<StepPoint>()
  readonly #validations = new Curve<ValidationPoint>()
  readonly #events = new RunEvents()
  readonly departed: DepartureView[] = []
  /** versions that the last rewinds went back to, oldest first: watchers drop what they know above them */
  readonly rewinds: number[] = []
  /** rewinds ever; the newest of `rewinds` has the number rewindCount − 1 */
  rewindCount = 0
  startedAt: number | undefined
  finishedAt: number | undefined
  #samples = 0
  /** the newest points, after all went */
  #last: LastPoints = { step: undefined, validation: undefined }
  #isReleased = false

  constructor(config: RunConfig) {
    this.state = createRunState(config)
  }

  /** What pages draw is on the disk alone (pastOf). */
  get isReleased(): boolean {
    return this.#isReleased
  }

  /** The run is over and its rows are durable: memory keeps its totals. The journal takes no snapshot from here. */
  release(): void {
    this.#last = { step: this.lastStep, validation: this.lastValidation }
    this.#isReleased = true
    this.#steps.replace([])
    this.#validations.replace([])
    this.#events.clear()
    forgetPast(this.state)
  }

  /** Oldest first. */
  get events(): readonly RunEvent[] {
    return this.#events.list
  }

  /** events ever noted */
  get eventCount(): number {
    return this.#events.count
  }

  /** Those that were noted after so many, as far as they are kept. */
  eventsSince(count: number): readonly RunEvent[] {
    return this.#events.since(count)
  }

  /** Version of the last validation; 0 before the first. */
  get lastValidated(): number {
    return this.lastValidation?.v ?? 0
  }

  get lastStep(): StepPoint | undefined {
    return this.steps.at(-1) ?? this.#last.step
  }

  get lastValidation(): ValidationPoint | undefined {
    return this.validations.at(-1) ?? this.#last.validation
  }

  get samplesCommitted(): number {
    return this.#samples
  }

  /** The committed version that is durable. */
  get version(): VersionRef {
    return this.state.chain.head
  }

  /** Ascending by v. */
  get steps(): readonly StepPoint[] {
    return this.#steps.points
  }

  /** Ascending by v. */
  get validations(): readonly ValidationPoint[] {
    return this.#validations.points
  }

  /** A durable row, in its order. @throws GridError 'journal-damaged' for a snapshot that cannot be read */
  observe({ entry, at }: JournalRow): void {
    this.startedAt ??= at
    const gone = entry.type === 'rewind' ? this.#samplesAbove(entry.to) : 0
    applyEntry(this.state, entry, at)
    switch (entry.type) {
      case 'start':
      case 'commit':
        return this.#committed(entry.records, at)
      case 'validated':
        return this.#validated(entry.version, at)
      case 'rewind':
        this.#samples -= gone
        return this.#rewound(entry.to.v)
      case 'finished':
        this.finishedAt = at
        return
      case 'snapshot':
        return this.#read(entry.shown)
      default:
    }
  }

  /** The row that stands for all rows so far. */
  snapshot(): Extract<JournalEntry, { type: 'snapshot' }> {
    return { type: 'snapshot', run: writtenRun(this.state), shown: this.#written() }
  }

  /** What rows tell of the time before this process, as events. */
  noteRows(rows: readonly JournalRow[]): void {
    for (const [place, row] of rows.entries()) {
      const event = eventOf(row, place === 0)
      if (event !== undefined) this.note(event.kind, event.text, event.at)
    }
  }

  note(kind: RunEvent['kind'], text: string, at: number): void {
    this.#events.note({ at, kind, text: plainText(text).slice(0, MAX_EVENT_LENGTH) })
  }

  left(
    member: { readonly id: MemberId; readonly name: string },
    why: { readonly reason: string; readonly expected: boolean },
    at: number,
  ): void {
    this.departed.push({ id: member.id, name: member.name, at, reason: why.reason, expected: why.expected })
    if (this.departed.length > MAX_DEPARTURES) this.departed.shift()
  }

  /** Its last departure was a goodbye, and no broken connection; returns its name. Undefined: that was known. */
  leftByGoodbye(member: MemberId): string | undefined {
    const place = this.departed.findLastIndex(({ id }) => id === member)
    const departure = this.departed[place]
    if (departure === undefined || departure.expected) return undefined
    this.departed[place] = { ...departure, reason: 'closed its connection', expected: true }
    return departure.name
  }

  /** Of the records that a rewind takes back. */
  #samplesAbove({ v }: VersionRef): number {
    const { chain } = this.state
    if (v < chain.base.v) return this.#samples
    return chain.since(v).reduce((sum, { samples }) => sum + samples, 0)
  }

  #committed(records: readonly StepRecord[], at: number): void {
    for (const record of records) {
      this.#steps.add(stepPoint(record, at))
      this.#samples += record.samples
    }
  }

  /** A point when the last block of the version is in. */
  #validated({ v, id }: VersionRef, at: number): void {
    const { state } = this
    if ((state.validated.get(id)?.size ?? 0) < validationBlocks(state) || this.#validations.has(v)) return
    const block = state.chain.record(v)?.blocks[0]
    this.#validations.add({ v, epoch: block === undefined ? 0 : epochOf(block), ...summary(state, id), at })
  }

  #rewound(v: number): void {
    this.#steps.truncate(v)
    this.#validations.truncate(v)
    this.rewinds.push(v)
    this.rewindCount++
    if (this.rewinds.length > MAX_REWINDS) this.rewinds.shift()
  }

  #written(): WrittenHistory {
    return {
      samples: this.#samples,
      startedAt: this.startedAt ?? null,
      finishedAt: this.finishedAt ?? null,
      steps: this.steps.map(({ v, loss, accuracy, samples, mode, at }) => [
        v,
        loss,
        accuracy,
        samples,
        MODES.indexOf(mode),
        at,
      ]),
      validations: [...this.validations],
      rewindCount: this.rewindCount,
      events: [...fittingEvents(this.events, WRITTEN_EVENTS)],
    }
  }

  #read(value: unknown): void {
    const written = parse(WrittenHistorySchema, value, 'the curves in a snapshot of the journal', 'journal-damaged')
    this.#samples = written.samples
    this.startedAt = written.startedAt ?? undefined
    this.finishedAt = written.finishedAt ?? undefined
    this.#steps.replace(
      written.steps.map(([v, loss, accuracy, samples, mode, at]) => ({
        v,
        loss,
        accuracy,
        samples,
        mode: MODES[mode] ?? 'ring',
        at,
      })),
    )
    this.#validations.replace(written.validations)
    this.rewindCount = written.rewindCount
    for (const { at, kind, text } of written.events) this.note(kind as RunEvent['kind'], text, at)
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
function eventOf({ entry, at }: JournalRow, isFirst: boolean): RunEvent | undefined {
  switch (entry.type) {
    case 'fence':
      return { at, kind: 'run', text: isFirst ? 'the run began' : 'the coordinator started again' }
    case 'start':
      return { at, kind: 'generation', text: `generation ${entry.generation} of ${entry.members.length} started` }
    case 'checkpoint':
      return { at, kind: 'checkpoint', text: `checkpoint of version ${entry.version.v}` }
    case 'rewind':
      return { at, kind: 'rewind', text: `back to checkpoint ${entry.to.v}` }
    case 'derived':
      return { at, kind: 'audit', text: derivedText(entry) }
    case 'mode':
      return { at, kind: 'mode', text: `${entry.mode}: ${entry.reason}` }
    case 'finished':
      return { at, kind: 'run', text: entry.reason }
    default:
      return undefined
  }
}
