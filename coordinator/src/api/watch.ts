// The dashboard's stream: one snapshot, then what is new, twice a second. A page that reads too slowly misses updates
// and gets a new snapshot; it never costs more memory than one. A page says at most one thing: the owner's token. Its
// address may name the job (`?job=ID`); it is shown the newest one otherwise.
import {
  CLOSE_AWAY,
  CLOSE_FULL,
  CLOSE_POLICY,
  GridError,
  isGridError,
  parse,
  parseJson,
  plainText,
  ROUTES,
  type RunEvent,
  type RunView,
  type WatchMessage,
  WatchTokenSchema,
} from '@starling-grid/protocol'
import type { FastifyInstance } from 'fastify'
import type { WebSocket } from 'ws'
import { allows, type Holder } from '../access/tokens.ts'
import type { CoordinatorClock } from '../clock.ts'
import type { Past } from '../host/run-history.ts'
import type { RunHost } from '../host/run-host.ts'
import { type Reader, viewFor } from '../host/run-view.ts'
import type { Runs } from '../jobs/runs.ts'
import { type Access, readerWith } from './access.ts'
import { addressOf } from './addresses.ts'
import { atOwner, jobNamed, type WhereIs } from './watched-job.ts'

const UPDATE_MS = 500
/** bytes that wait for one page before it is skipped */
const MAX_BACKLOG_BYTES = 1024 * 1024
/** Pages of strangers. */
const MAX_WATCHERS = 500
/** RFC 6455: try again later; going away; policy violation */
/** ms for a page that said something else to close */
const CLOSE_MS = 1000

/** Pages of strangers from one address: a room of volunteers behind one router. */
const MAX_WATCHERS_PER_ADDRESS = 64
/** Pages that find the stream full and may still say that they are the owner's, and the ms that they have for it. */
const MAX_UNPROVEN = 16
const PROOF_MS = 5000
/** ms between pings, and of silence after which a page is gone */
const PING_MS = 15_000
const SILENT_MS = 45_000
/** Bytes of the one message of a page. */
const MAX_WORD_BYTES = 4096
/** Dials in a minute from one address. */
const DIALS_PER_MINUTE = 600

/** How far one page has been told. */
interface ToldSoFar {
  run: RunHost | undefined
  /** true: the next message is a snapshot */
  fresh: boolean
  /** the past of an ended run is read for it */
  reading: boolean
  v: number
  /** version of the last validation */
  validated: number
  events: number
  rewinds: number
  /** the last view as text: unchanged ones are not sent again */
  view: string
}

/** A page that watches. */
interface Watcher extends ToldSoFar {
  readonly socket: WebSocket
  readonly address: string
  /** the job that its address names; undefined: the newest one */
  readonly job: string | undefined
  /** undefined: a stranger */
  holder: Holder | undefined
  /** ms: when it came, when it last answered a ping, when it was last pinged */
  readonly openedAt: number
  aliveAt: number
  pingedAt: number
  /** it found no place among strangers: it is told nothing before it says that it is the owner's */
  readonly unproven: boolean
  spoke: boolean
}

export interface WatchService {
  stop(): void
}

export interface WatchRoutes {
  readonly clock: CoordinatorClock
  readonly runs: Runs
  readonly access: Access
  readonly whereIs: WhereIs
}

export function registerWatch(app: FastifyInstance, parts: WatchRoutes): WatchService {
  const { clock } = parts
  const watchers = new Set<Watcher>()
  const stopTelling = clock.every(UPDATE_MS, () => {
    for (const watcher of watchers) check(watcher, clock.awake())
    tell(watchers, parts)
  })

  app.get(
    ROUTES.watch,
    { websocket: true, config: { rateLimit: { max: DIALS_PER_MINUTE, timeWindow: 60_000 } } },
    (socket, request) => {
      // The close event follows and does what is to do.
      socket.on('error', () => {})
      const seat = seatFor(watchers, addressOf(request))
      if (seat === 'none') return socket.close(CLOSE_FULL, 'too many pages watch already')
      const watcher = newWatcher({
        socket,
        address: addressOf(request),
        job: jobNamed(request.query),
        unproven: seat === 'unproven',
        at: clock.awake(),
      })
      watchers.add(watcher)
      socket.on('close', () => watchers.delete(watcher))
      socket.on('pong', () => {
        watcher.aliveAt = clock.awake()
      })
      socket.on('message', (data: Buffer, isBinary) => heard(watcher, { ...parts, data, isBinary }))
      tell([watcher], parts)
    },
  )

  return {
    stop() {
      stopTelling()
      for (const { socket } of watchers) socket.close(CLOSE_AWAY, 'the coordinator stops')
    },
  }
}

/** What is damaged is its owner's to know. */
function nothingToShow({ holder, job }: Watcher, runs: Runs): string {
  if (job !== undefined)
    return `no job ${plainText(job)} is shown here: it is gone, or private; open the dashboard without it`
  const isAdmin = holder !== undefined && allows(holder, 'admin')
  return ['no job was submitted yet', ...(isAdmin ? runs.damaged() : []).map(({ message }) => message)].at(-1) ?? ''
}

function newWatcher({ socket, address, job, unproven, at }: NewWatcher): Watcher {
  const heard = { holder: undefined, openedAt: at, aliveAt: at, pingedAt: at, unproven, spoke: false }
  return {
    socket,
    address,
    job,
    ...heard,
    run: undefined,
    fresh: true,
    reading: false,
    v: 0,
    validated: 0,
    events: 0,
    rewinds: 0,
    view: '',
  }
}

interface NewWatcher extends Pick<Watcher, 'socket' | 'address' | 'job' | 'unproven'> {
  /** ms */
  readonly at: number
}

/** Owners are not counted: strangers take no place from them. */
function seatFor(watchers: ReadonlySet<Watcher>, address: string): 'free' | 'unproven' | 'none' {
  const strangers = [...watchers].filter(({ holder, unproven }) => holder === undefined && !unproven)
  const neighbours = strangers.filter((watcher) => watcher.address === address)
  if (strangers.length < MAX_WATCHERS && neighbours.length < MAX_WATCHERS_PER_ADDRESS) return 'free'
  const unproven = [...watchers].filter((watcher) => watcher.unproven && watcher.holder === undefined)
  return unproven.length < MAX_UNPROVEN ? 'unproven' : 'none'
}

interface FirstMessage extends WatchRoutes {
  readonly data: Buffer
  readonly isBinary: boolean
}

/** The one word of a page is its token; anything else, or more, ends the stream. */
function heard(watcher: Watcher, { data, isBinary, ...parts }: FirstMessage): void {
  const { clock, access, runs } = parts
  const { socket, address } = watcher
  if (socket.readyState !== socket.OPEN) return
  try {
    if (watcher.spoke || isBinary || data.byteLength > MAX_WORD_BYTES)
      throw new GridError(
        'message-unexpected',
        'expected the owner token once, got another message; open the page again',
      )
    watcher.spoke = true
    const { token } = parse(
      WatchTokenSchema,
      parseJson(data.toString('utf8'), MAX_WORD_BYTES, 'the token'),
      'the token',
    )
    const holder = access.holder(token, address)
    if (holder === undefined)
      throw new GridError(
        'token-required',
        'expected the token of an owner, got another; take the one that the coordinator printed at start',
      )
    watcher.holder = holder
    socket.once(
      'close',
      access.holdOpen(holder, () => socket.close(CLOSE_POLICY, 'token-required')),
    )
  } catch (error) {
    if (!isGridError(error)) throw error
    socket.close(CLOSE_POLICY, error.code)
    socket.pause() // what it says meanwhile is not read
    socket.once(
      'close',
      clock.timer(CLOSE_MS, () => socket.terminate()),
    )
    return
  }
  const more = runs.shown() !== undefined || runs.damaged().length > 0
  Object.assign(watcher, { fresh: watcher.fresh || more })
  tell([watcher], parts)
}

/** Pings, and ends the stream of a page that is gone or did not say its token in time. */
function check(watcher: Watcher, at: number): void {
  const { socket, unproven, holder, openedAt } = watcher
  if (unproven && holder === undefined && at - openedAt > PROOF_MS)
    return socket.close(CLOSE_FULL, 'too many pages watch already')
  if (at - watcher.aliveAt > SILENT_MS) return socket.terminate()
  if (at - watcher.pingedAt < PING_MS || socket.readyState !== socket.OPEN) return
  watcher.pingedAt = at
  socket.ping()
}

/** A view and its text; made once for all who may see the same. */
interface ShownView {
  readonly value: RunView
  readonly text: string
}

function tell(watchers: Iterable<Watcher>, { runs, whereIs }: Pick<WatchRoutes, 'runs' | 'whereIs'>): void {
  const views = new Map<string, ShownView>()
  for (const watcher of watchers) {
    if (watcher.unproven && watcher.holder === undefined) continue
    if (watcher.socket.bufferedAmount > MAX_BACKLOG_BYTES) {
      watcher.fresh = true
      continue
    }
    const run = runFor(watcher, runs)
    const before = watcher.run?.job.id
    if (watcher.run !== run) Object.assign(watcher, { run, fresh: true })
    if (run === undefined) {
      if (watcher.fresh)
        send(watcher, { type: 'none', reason: nothingToShow(watcher, runs), ...atOwner(watcher.job, before, whereIs) })
      watcher.fresh = false
      continue
    }
    const reader = readerWith(watcher.holder, run)
    const key = `${run.job.id} ${reader}`
    const view = views.get(key) ?? shown(reader, run)
    views.set(key, view)
    if (missesMore(watcher, run)) watcher.fresh = true
    if (watcher.fresh && run.history.isReleased) {
      void tellPast(watcher, run)
      continue
    }
    const news = watcher.fresh ? snapshot(run.history, view.value) : update(watcher, run, view)
    if (news !== undefined) sendView(watcher, view, news)
    told(watcher, run, view.text)
  }
}

/** A private job that a page names is there for its owner alone. */
function runFor({ job, holder }: Watcher, runs: Runs): RunHost | undefined {
  if (job === undefined) return runs.shown()
  const run = runs.find(job)
  return run !== undefined && readerWith(holder, run) !== 'stranger' ? run : undefined
}

/** More than an update says: too many rewinds, or the end of a run whose points are on the disk by now. */
function missesMore(watcher: Watcher, { history }: RunHost): boolean {
  if (history.rewindCount - watcher.rewinds > history.rewinds.length) return true
  if (!history.isReleased) return false
  return watcher.v < history.version.v || watcher.validated < history.lastValidated
}

/** The page may leave, or prove that it is the owner's, while the journal is read. */
async function tellPast(watcher: Watcher, run: RunHost): Promise<void> {
  if (watcher.reading) return
  watcher.reading = true
  const past = await run.past()
  watcher.reading = false
  if (watcher.run !== run) return
  const view = shown(readerWith(watcher.holder, run), run)
  sendView(watcher, view, snapshot(past, view.value))
  told(watcher, run, view.text)
}

function shown(reader: Reader, run: RunHost): ShownView {
  const value = viewFor(reader, run.view())
  return { value, text: JSON.stringify(value) }
}

/** A message about a run, less its view: the text of that is made once for all who are told. */
type RunNews = Omit<Exclude<WatchMessage, { type: 'none' }>, 'run'>

function snapshot({ steps, validations, events }: Past, run: RunView): RunNews {
  return { type: 'snapshot', steps, validations, events: eventsFor(run, events) }
}

function update(watcher: Watcher, { history }: RunHost, view: ShownView): RunNews | undefined {
  const missed = history.rewindCount - watcher.rewinds
  const rewoundTo = missed === 0 ? undefined : Math.min(...history.rewinds.slice(-missed))
  const steps = after(history.steps, Math.min(watcher.v, rewoundTo ?? watcher.v))
  const validations = after(history.validations, Math.min(watcher.validated, rewoundTo ?? watcher.validated))
  const hasNews = history.eventCount > watcher.events
  const events = hasNews ? eventsFor(view.value, history.eventsSince(watcher.events)) : []
  if (view.text === watcher.view && steps.length + validations.length + events.length === 0 && rewoundTo === undefined)
    return undefined
  return {
    type: 'update',
    steps,
    validations,
    events,
    ...(rewoundTo === undefined ? {} : { rewoundTo }),
  }
}

/** Events name members. */
function eventsFor({ detail }: RunView, events: readonly RunEvent[]): readonly RunEvent[] {
  return detail === 'whole' ? events : []
}

function told(watcher: Watcher, { history }: RunHost, view: string): void {
  Object.assign(watcher, {
    fresh: false,
    v: history.version.v,
    validated: history.lastValidated,
    events: history.eventCount,
    rewinds: history.rewindCount,
    view,
  })
}

/** Points of versions above v. */
function after<T extends { readonly v: number }>(points: readonly T[], v: number): readonly T[] {
  return points.slice(points.findLastIndex((point) => point.v <= v) + 1)
}

function sendView(watcher: Watcher, { text }: ShownView, news: RunNews): void {
  sendText(watcher, `${JSON.stringify(news).slice(0, -1)},"run":${text}}`)
}

function send(watcher: Watcher, message: WatchMessage): void {
  sendText(watcher, JSON.stringify(message))
}

function sendText({ socket }: Watcher, text: string): void {
  if (socket.readyState === socket.OPEN) socket.send(text)
}
