// One visitor's contribution: starts the Worker, keeps the peer network for it, leaves gracefully. Independent of the
// page's appearance.
import { type ReadonlySignal, signal } from '@preact/signals'
import { describeError, isGridError, type MemberId, ROUTES } from '@starling-grid/protocol'
import type { PeerNetwork, VolunteerStatus } from '@starling-grid/volunteer'
import { askedExecutor } from '../asked-executor.ts'
import { startOwnWorker } from '../own-worker.ts'
import workerUrl from '../train-worker.ts?worker&url'
import type { Failure, FromWorker, Lent, ToWorker } from '../worker-messages.ts'
import { goOnAt } from './lend-on.ts'
import { visitorInvite } from './visitor-invite.ts'

/** Leaving takes two messages; a Worker that is stuck in a kernel longer than this is ended from outside. */
const STOP_MS = 4000

/** Enough for a request to leave before the Worker's socket closes, too short to be felt. */
const GOODBYE_MS = 60

export type SessionState =
  | { readonly type: 'idle' }
  | { readonly type: 'running'; readonly status: VolunteerStatus | null }
  | { readonly type: 'stopping'; readonly status: VolunteerStatus | null }
  /** clean: the coordinator was told */
  | {
      readonly type: 'ended'
      readonly status: VolunteerStatus | null
      readonly by: 'user' | 'run'
      readonly clean: boolean
    }
  | { readonly type: 'failed'; readonly status: VolunteerStatus | null; readonly failure: Failure }

type OpenPeers = Extract<FromWorker, { type: 'open-peers' }>

interface RunningWorker {
  readonly worker: Worker
  readonly control: MessagePort
  /** ends the watch over whether the page is seen */
  readonly visibility: AbortController
  network: PeerNetwork | undefined
  /** of its session with the coordinator, once it has one */
  token: string | undefined
}

/** Loads what the button needs while the visitor reads; nothing of it runs yet. */
export function prefetchWorker(): void {
  void fetch(workerUrl).catch(() => undefined)
}

export class Session {
  readonly #state = signal<SessionState>({ type: 'idle' })
  readonly #self = signal<MemberId | null>(null)
  #running: RunningWorker | undefined
  #lent: Lent | undefined
  /** what earlier starts on this page added to a job: the total goes on from there */
  #earlier: Pick<VolunteerStatus, 'job' | 'samplesCommitted'> | null = null

  get state(): ReadonlySignal<SessionState> {
    return this.#state
  }

  /** this tab's member id, once it has joined */
  get self(): ReadonlySignal<MemberId | null> {
    return this.#self
  }

  start(lent: Lent): void {
    if (this.#running !== undefined || this.#state.value.type === 'running') return
    this.#lent = lent
    this.#earlier = this.#status()
    this.#state.value = { type: 'running', status: null }
    const broke = (message: string): void =>
      this.#end({ type: 'failed', status: this.#status(), failure: { code: 'internal', message } })
    this.#running = startWorker(lent, (message) => this.#heard(message), broke)
  }

  stop(): void {
    const running = this.#running
    if (running === undefined || this.#state.value.type !== 'running') return
    this.#state.value = { type: 'stopping', status: this.#status() }
    tell(running, { type: 'stop' })
    setTimeout(() => {
      if (this.#running === running) this.#end({ type: 'ended', status: this.#status(), by: 'user', clean: false })
    }, STOP_MS)
  }

  /** The page is about to go, and the Worker with it. */
  leave(): void {
    if (this.#running === undefined) return
    const { token } = this.#running
    this.stop()
    // The Worker dies with this handler's return, perhaps inside a kernel. A request with `keepalive` outlives the
    // page.
    if (token !== undefined) void sendLeave(token).catch(() => undefined)
    const until = performance.now() + GOODBYE_MS
    while (performance.now() < until);
  }

  #heard(message: FromWorker): void {
    const state = this.#state.value
    switch (message.type) {
      case 'status':
        if (state.type === 'running' || state.type === 'stopping')
          this.#state.value = { ...state, status: this.#inTotal(message.status) }
        return
      case 'elsewhere':
        return this.#goOn(message)
      case 'open-peers':
        return void this.#openPeers(message)
      case 'ended':
        if (message.failure !== null)
          return this.#end({ type: 'failed', status: this.#status(), failure: message.failure })
        return this.#end({
          type: 'ended',
          status: this.#status(),
          by: state.type === 'stopping' ? 'user' : 'run',
          clean: true,
        })
      default:
        message satisfies never
    }
  }

  /** The tab opens the page of the other coordinator, which lends on as this one did. */
  #goOn({ url, job }: Extract<FromWorker, { type: 'elsewhere' }>): void {
    if (this.#lent !== undefined && this.#state.value.type === 'running')
      goOnAt(url, { ...this.#lent, sentFor: job ?? undefined }, visitorInvite())
  }

  async #openPeers({ access, identity, port }: OpenPeers): Promise<void> {
    const running = this.#running
    if (running === undefined) return
    this.#self.value = access.self
    running.token = access.token
    try {
      const [{ openPeerNetwork }, { servePeerNetwork }, { signerWith }] = await Promise.all([
        import('../rtc-link.ts'),
        import('../link-bridge.ts'),
        import('../signer.ts'),
      ])
      const { privateKey, ...known } = identity
      const network = await openPeerNetwork({ ...access, identity: { ...known, signer: signerWith(privateKey) } })
      if (running !== this.#running) return network.stop()
      running.network = network
      servePeerNetwork(port, network)
      tell(running, { type: 'peers-open' })
    } catch (error) {
      tell(running, { type: 'peers-failed', failure: failureOf(error, 'link-lost') })
    }
  }

  #end(next: SessionState): void {
    this.#running?.network?.stop()
    this.#running?.visibility.abort()
    this.#running?.control.close()
    this.#running?.worker.terminate()
    this.#running = undefined
    this.#self.value = null
    this.#state.value = next
  }

  #inTotal(status: VolunteerStatus): VolunteerStatus {
    const before = this.#earlier?.job?.name === status.job?.name ? (this.#earlier?.samplesCommitted ?? 0) : 0
    return { ...status, samplesCommitted: before + status.samplesCommitted }
  }

  #status(): VolunteerStatus | null {
    return 'status' in this.#state.value ? this.#state.value.status : null
  }
}

function startWorker(
  lent: Lent,
  heard: (message: FromWorker) => void,
  broke: (message: string) => void,
): RunningWorker {
  const worker = startOwnWorker(workerUrl)
  const { port1, port2 } = new MessageChannel()
  port1.onmessage = (event: MessageEvent<FromWorker>) => heard(event.data)
  worker.onerror = (event) => broke(event.message || 'its Worker could not be loaded')
  const begin: ToWorker = {
    type: 'begin',
    ...lent,
    executor: askedExecutor(location.search),
    coordinatorUrl: location.origin,
    invite: visitorInvite(),
    control: port2,
  }
  worker.postMessage(begin, [port2])
  const visibility = new AbortController()
  const running: RunningWorker = { worker, control: port1, visibility, network: undefined, token: undefined }
  const look = (): void => tell(running, { type: 'hidden', hidden: document.visibilityState === 'hidden' })
  document.addEventListener('visibilitychange', look, { signal: visibility.signal })
  look()
  return running
}

/** What the Worker says too, where it still can. */
function sendLeave(token: string): Promise<Response> {
  return fetch(ROUTES.leave, { method: 'POST', keepalive: true, headers: { authorization: `Bearer ${token}` } })
}

function tell(running: RunningWorker, message: ToWorker): void {
  running.control.postMessage(message)
}

function failureOf(error: unknown, otherwise: string): Failure {
  return {
    code: isGridError(error) ? error.code : otherwise,
    message: isGridError(error) ? error.message : describeError(error),
  }
}
