// The watch stream: a WebSocket that reconnects and reports when it will.
import { type ErrorCode, type JobId, ROUTES, type WatchMessage } from '@starling-grid/protocol'

/** Reason of a close: the token is not this coordinator's. */
const TOKEN_REFUSED: ErrorCode = 'token-required'
/** First wait after the stream broke; doubles up to the longest. Jittered, so that pages do not return all at once. */
const FIRST_WAIT_MS = 500
const LONGEST_WAIT_MS = 8000

/** Failures, one after the other, after some five seconds */
const GONE_AFTER = 4

export type WatchLink =
  | { readonly type: 'connecting' }
  | { readonly type: 'live' }
  /** retryAt: ms since the epoch */
  | { readonly type: 'away'; readonly retryAt: number }

export interface WatchHandlers {
  /** sent to the coordinator first, so that it sends everything */
  readonly token: string | undefined
  /** undefined: the newest */
  readonly job: JobId | undefined
  readonly onTokenRefused: () => void
  readonly onMessage: (message: WatchMessage) => void
  readonly onLink: (link: WatchLink) => void
  /** it stays away: another coordinator has its jobs by now, where there are others */
  readonly onGone?: () => void
}

export class WatchSocket {
  readonly #handlers: WatchHandlers
  #socket: WebSocket | undefined
  #timer: ReturnType<typeof setTimeout> | undefined
  #failures = 0
  #token: string | undefined
  #job: JobId | undefined

  constructor(handlers: WatchHandlers) {
    this.#handlers = handlers
    this.#token = handlers.token
    this.#job = handlers.job
  }

  start(): void {
    this.#handlers.onLink({ type: 'connecting' })
    const socket = new WebSocket(watchUrl(location, this.#job))
    this.#socket = socket
    socket.onmessage = (event: MessageEvent<unknown>) => this.#received(event.data)
    socket.onopen = () =>
      this.#token !== undefined && socket.send(JSON.stringify({ type: 'owner', token: this.#token }))
    socket.onclose = ({ reason }) => this.#lost(reason)
  }

  stop(): void {
    clearTimeout(this.#timer)
    if (this.#socket === undefined) return
    this.#socket.onclose = null
    this.#socket.close()
    this.#socket = undefined
  }

  /** At once instead of at the end of the wait. */
  retryNow(): void {
    this.stop()
    this.start()
  }

  /** Another job, at once. */
  watch(job: JobId | undefined): void {
    this.#job = job
    this.retryNow()
  }

  #received(data: unknown): void {
    const message = parseWatchMessage(data)
    if (message === undefined) return
    // What it said before it had read the token.
    if (this.#token !== undefined && message.type !== 'none' && message.run.detail === 'totals') return
    this.#failures = 0
    this.#handlers.onLink({ type: 'live' })
    this.#handlers.onMessage(message)
  }

  #lost(reason: string): void {
    if (reason === TOKEN_REFUSED) {
      this.#token = undefined
      this.#handlers.onTokenRefused()
    }
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#failures) * (0.75 + Math.random() / 2)
    this.#failures++
    if (this.#failures >= GONE_AFTER) this.#handlers.onGone?.()
    this.#handlers.onLink({ type: 'away', retryAt: Date.now() + wait })
    this.#timer = setTimeout(() => this.start(), wait)
  }
}

function watchUrl(page: Location, job: JobId | undefined): string {
  const query = job === undefined ? '' : `?${new URLSearchParams({ job })}`
  return `${page.protocol === 'https:' ? 'wss:' : 'ws:'}//${page.host}${ROUTES.watch}${query}`
}

/** The stream comes from the coordinator that served this page; an unknown type is from a newer one. */
function parseWatchMessage(data: unknown): WatchMessage | undefined {
  const value: unknown = typeof data === 'string' ? JSON.parse(data) : undefined
  if (typeof value !== 'object' || value === null || !('type' in value)) return undefined
  return value.type === 'none' || value.type === 'snapshot' || value.type === 'update'
    ? (value as WatchMessage)
    : undefined
}
