// A client of the dashboard's stream: the run as it is, and everything that was committed so far.
import {
  ROUTES,
  type RunEvent,
  type RunView,
  type StepPoint,
  type ValidationPoint,
  type WatchMessage,
} from '@starling-grid/protocol'
import { WebSocket } from 'ws'

/** ms before the stream is dialled again after it broke */
const RETRY_MS = 300

export class Watch {
  readonly #url: string
  readonly #token: string
  readonly #listeners = new Set<() => void>()
  readonly #waits = new Set<string>()
  #socket: WebSocket | undefined
  #stopped = false
  /** ms that a state is waited for, unless the caller says another time */
  limitMs = 120_000
  run: RunView | undefined
  steps: StepPoint[] = []
  validations: ValidationPoint[] = []
  events: RunEvent[] = []
  /** the members when there were last some: they leave when the run is finished */
  members: RunView['members'] = []

  constructor(coordinatorUrl: string, token: string) {
    this.#token = token
    this.#url = `${coordinatorUrl.replace(/^http/, 'ws')}${ROUTES.watch}`
    this.#dial()
  }

  /** What is waited for now, in words. */
  get waitingFor(): string {
    return [...this.#waits].join(' and ') || 'nothing of the run'
  }

  /**
   * Resolves as soon as `state` answers something; looks again at every change. @throws Error that names what was
   * waited for
   */
  waitFor<T>(what: string, state: (watch: Watch) => T | undefined | false, limitMs = this.limitMs): Promise<T> {
    return new Promise((resolve, reject) => {
      const check = (): void => {
        const found = state(this)
        if (found === undefined || found === false) return
        finish(() => resolve(found))
      }
      const finish = (act: () => void): void => {
        clearTimeout(timer)
        this.#listeners.delete(check)
        this.#waits.delete(what)
        act()
      }
      const timer = setTimeout(
        () =>
          finish(() =>
            reject(new Error(`gave up waiting for ${what} after ${limitMs / 1000} s; the run is ${this.describe()}`)),
          ),
        limitMs,
      )
      this.#listeners.add(check)
      this.#waits.add(what)
      check()
    })
  }

  onChange(listener: () => void): void {
    this.#listeners.add(listener)
  }

  describe(): string {
    const { run } = this
    if (run === undefined) return 'unknown'
    const last = this.events
      .slice(-6)
      .map((event) => event.text)
      .join(' / ')
    return (
      `${run.phase} (${run.reason}), mode ${run.mode}, version ${run.version.v}, ${run.memberCount} members; ` +
      `lately: ${last}`
    )
  }

  stop(): void {
    this.#stopped = true
    this.#socket?.close()
  }

  #dial(): void {
    const socket = new WebSocket(this.#url)
    this.#socket = socket
    socket.on('open', () => socket.send(JSON.stringify({ type: 'owner', token: this.#token })))
    socket.on('message', (data) => this.#take(JSON.parse(String(data)) as WatchMessage))
    socket.on('error', () => undefined) // close follows
    socket.on('close', () => {
      if (!this.#stopped) setTimeout(() => this.#dial(), RETRY_MS)
    })
  }

  #take(message: WatchMessage): void {
    // What was sent before the coordinator read the token.
    if (message.type !== 'none' && message.run.detail === 'totals') return
    switch (message.type) {
      case 'none':
        break
      case 'snapshot':
        this.run = message.run
        this.steps = [...message.steps]
        this.validations = [...message.validations]
        this.events = [...message.events]
        break
      case 'update':
        this.#update(message)
        break
      default:
        message satisfies never
    }
    if (this.run !== undefined && this.run.members.length > 0) this.members = this.run.members
    for (const listener of [...this.#listeners]) listener()
  }

  #update(message: Extract<WatchMessage, { type: 'update' }>): void {
    const { rewoundTo } = message
    if (rewoundTo !== undefined) this.steps = this.steps.filter((step) => step.v <= rewoundTo)
    this.run = message.run
    this.steps.push(...message.steps)
    this.validations.push(...message.validations)
    this.events.push(...message.events)
  }
}
