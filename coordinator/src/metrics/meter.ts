// Counters and histograms of one coordinator, in Prometheus' types. Labels are of bounded tables: modes, codes, types
// of journal rows, patterns of routes; never members, addresses or texts that came from outside.
import type { ErrorCode } from '@starling-grid/protocol'
import { Counter, Histogram, Registry } from 'prom-client'
import type { RunMeter } from '../host/run-meter.ts'
import type { JournalRow } from '../journal/state-store.ts'
import type { JournalEntry } from '../run/recorded.ts'

/** seconds: an fsync of a fast disk to one of a disk that fails */
const APPEND_BUCKETS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]
/** seconds: an answer from memory to the upload of a large version */
const REQUEST_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]

/** One answered request. */
export interface AnsweredRequest {
  readonly method: string
  /** its pattern, such as /api/v1/jobs/:id; undefined: no route */
  readonly route: string | undefined
  readonly status: number
  readonly seconds: number
}

export class Meter implements RunMeter {
  readonly registry = new Registry()
  readonly #steps: Counter<'kind'>
  readonly #ballots: Counter
  readonly #rewinds: Counter
  readonly #modes: Counter<'mode'>
  readonly #rows: Counter<'type'>
  readonly #append: Histogram
  readonly #appendFailures: Counter
  readonly #refusals: Counter<'code'>
  readonly #takenOver: Counter
  readonly #relayed: Counter
  readonly #requests: Counter<'method' | 'route' | 'status'>
  readonly #requestSeconds: Histogram<'method' | 'route'>

  constructor() {
    const registers = [this.registry]
    const counter = <Label extends string>(name: string, help: string, labelNames: readonly Label[] = []) =>
      new Counter<Label>({ name, help, labelNames, registers })
    this.#steps = counter('starling_steps_total', 'Steps that were committed, by how they were made', ['kind'])
    this.#ballots = counter('starling_ballots_total', 'Ballots that were opened: each begins a generation')
    this.#rewinds = counter('starling_rewinds_total', 'Times that a run went back to an older version')
    this.#modes = counter('starling_mode_changes_total', 'Changes to a mode; async is the fallback of a ring', ['mode'])
    this.#rows = counter('starling_journal_rows_total', 'Durable rows of journals', ['type'])
    this.#append = new Histogram({
      name: 'starling_journal_append_seconds',
      help: 'Time until a group of rows is durable',
      buckets: APPEND_BUCKETS,
      registers,
    })
    this.#appendFailures = counter('starling_journal_failures_total', 'Appends that failed; each is tried again')
    this.#refusals = counter('starling_refusals_total', 'What was refused, by code', ['code'])
    this.#takenOver = counter('starling_jobs_taken_over_total', 'Jobs that came here from another coordinator')
    this.#relayed = counter('starling_relay_bytes_total', 'Bytes that were relayed between members')
    this.#requests = counter('starling_http_requests_total', 'Answered HTTP requests', ['method', 'route', 'status'])
    this.#requestSeconds = new Histogram({
      name: 'starling_http_request_seconds',
      help: 'Time until an answer was sent whole',
      labelNames: ['method', 'route'],
      buckets: REQUEST_BUCKETS,
      registers,
    })
  }

  appending(): (written: readonly JournalRow[] | undefined) => void {
    const stop = this.#append.startTimer()
    return (written) => {
      if (written === undefined) return this.#appendFailures.inc()
      stop()
      for (const { entry } of written) this.#appended(entry)
    }
  }

  tookOver(): void {
    this.#takenOver.inc()
  }

  refused(code: ErrorCode): void {
    this.#refusals.inc({ code })
  }

  relayed(bytes: number): void {
    this.#relayed.inc(bytes)
  }

  answered({ method, route = 'none', status, seconds }: AnsweredRequest): void {
    // A method that no route has is whatever a stranger wrote.
    const label = route === 'none' ? 'any' : method
    this.#requests.inc({ method: label, route, status })
    this.#requestSeconds.observe({ method: label, route }, seconds)
  }

  #appended(entry: JournalEntry): void {
    this.#rows.inc({ type: entry.type })
    switch (entry.type) {
      case 'start':
      case 'commit':
        for (const { kind } of entry.records) this.#steps.inc({ kind })
        return
      case 'ballot':
        return this.#ballots.inc()
      case 'rewind':
        return this.#rewinds.inc()
      case 'mode':
        return this.#modes.inc({ mode: entry.mode })
      default:
    }
  }
}
