// The dashboard's stream: one snapshot, then what is new, twice a second. A page that reads too slowly misses updates and gets
// a new snapshot; it never costs more memory than one.
import type { StepPoint, WatchMessage } from '@starling-grid/protocol'
import type { FastifyInstance } from 'fastify'
import type { WebSocket } from 'ws'
import type { RunHost } from '../run-host.ts'
import type { Runs } from '../runs.ts'

const UPDATE_MS = 500
/** bytes that wait for one page before it is skipped */
const MAX_BACKLOG_BYTES = 1024 * 1024
const MAX_WATCHERS = 500
/** steps in a snapshot: more than a chart has pixels. A longer run is thinned; its last steps are all there */
const MAX_SNAPSHOT_STEPS = 4000
/** RFC 6455: try again later; going away */
const CLOSE_FULL = 1013
const CLOSE_AWAY = 1001

/** How far one page has been told. */
interface Watcher {
  readonly socket: WebSocket
  run: RunHost | undefined
  /** true: the next message is a snapshot */
  fresh: boolean
  v: number
  validations: number
  events: number
  rewinds: number
  /** the last view as text: unchanged ones are not sent again */
  view: string
}

export interface Watching {
  stop(): void
}

export function registerWatch(app: FastifyInstance, runs: Runs): Watching {
  const watchers = new Set<Watcher>()
  const timer = setInterval(() => tell(watchers, runs), UPDATE_MS)

  app.get('/api/watch', { websocket: true }, (socket) => {
    // The close event follows and does what is to do.
    socket.on('error', () => {})
    if (watchers.size >= MAX_WATCHERS) return socket.close(CLOSE_FULL, 'too many pages watch already')
    const watcher: Watcher = { socket, run: undefined, fresh: true, v: 0, validations: 0, events: 0, rewinds: 0, view: '' }
    watchers.add(watcher)
    socket.on('close', () => watchers.delete(watcher))
    tell([watcher], runs)
  })

  return {
    stop() {
      clearInterval(timer)
      for (const { socket } of watchers) socket.close(CLOSE_AWAY, 'the coordinator stops')
    },
  }
}

function nothingToShow(runs: Runs): string {
  return ['no job was submitted yet', ...runs.damaged().map(({ message }) => message)].at(-1) ?? ''
}

function tell(watchers: Iterable<Watcher>, runs: Runs): void {
  const run = runs.shown()
  let view: { readonly value: ReturnType<RunHost['view']>; readonly text: string } | undefined
  for (const watcher of watchers) {
    if (watcher.socket.bufferedAmount > MAX_BACKLOG_BYTES) {
      watcher.fresh = true
      continue
    }
    if (watcher.run !== run) Object.assign(watcher, { run, fresh: true })
    if (run === undefined) {
      if (watcher.fresh) send(watcher, { type: 'none', reason: nothingToShow(runs) })
      watcher.fresh = false
      continue
    }
    if (view === undefined) {
      const value = run.view()
      view = { value, text: JSON.stringify(value) }
    }
    const message = watcher.fresh ? snapshot(run, view.value) : update(watcher, run, view)
    if (message !== undefined) send(watcher, message)
    told(watcher, run, view.text)
  }
}

function snapshot({ history }: RunHost, run: ReturnType<RunHost['view']>): WatchMessage {
  return { type: 'snapshot', run, steps: thinned(history.steps), validations: history.validations, events: history.events }
}

function update(watcher: Watcher, { history }: RunHost, view: { readonly value: ReturnType<RunHost['view']>; readonly text: string }): WatchMessage | undefined {
  const rewound = history.rewinds.slice(watcher.rewinds)
  const rewoundTo = rewound.length === 0 ? undefined : Math.min(...rewound)
  const from = Math.min(watcher.v, rewoundTo ?? watcher.v)
  const steps = history.steps.slice(from)
  const validations = rewoundTo === undefined ? history.validations.slice(watcher.validations) : history.validations.filter(({ v }) => v > rewoundTo)
  const news = history.eventCount - watcher.events
  const events = news > 0 ? history.events.slice(-news) : []
  if (view.text === watcher.view && steps.length + validations.length + events.length === 0 && rewoundTo === undefined) return undefined
  return { type: 'update', run: view.value, steps, validations, events, ...(rewoundTo === undefined ? {} : { rewoundTo }) }
}

function told(watcher: Watcher, { history }: RunHost, view: string): void {
  Object.assign(watcher, {
    fresh: false, v: history.steps.length, validations: history.validations.length, events: history.eventCount, rewinds: history.rewinds.length, view,
  })
}

/** Every n-th step, and all of the last tenth. */
function thinned(steps: readonly StepPoint[]): readonly StepPoint[] {
  if (steps.length <= MAX_SNAPSHOT_STEPS) return steps
  const whole = MAX_SNAPSHOT_STEPS / 10
  const old = steps.slice(0, -whole)
  const every = Math.ceil(old.length / (MAX_SNAPSHOT_STEPS - whole))
  return [...old.filter((_, i) => i % every === 0), ...steps.slice(-whole)]
}

function send({ socket }: Watcher, message: WatchMessage): void {
  if (socket.readyState === socket.OPEN) socket.send(JSON.stringify(message))
}
