// One visitor's contribution: starts the Worker, keeps the peer network for it, leaves gracefully.
// Knows nothing of what the page looks like.
import { type ReadonlySignal, signal } from '@preact/signals'
import { describeError, isGridError, type MemberId } from '@starling-grid/protocol'
import type { PeerNetwork, SignallingAccess, VolunteerStatus } from '@starling-grid/volunteer'
import { requestAdapter } from '../gpu.ts'
import workerUrl from '../train-worker.ts?worker&url'
import type { Failure, FromWorker, ToWorker } from '../worker-messages.ts'

/** Leaving takes two messages; a Worker that is stuck in a kernel longer than this is ended from outside. */
const STOP_MS = 4000

export type SessionState =
  | { readonly type: 'idle' }
  | { readonly type: 'running'; readonly status: VolunteerStatus | null }
  | { readonly type: 'stopping'; readonly status: VolunteerStatus | null }
  /** clean: the coordinator was told */
  | { readonly type: 'ended'; readonly status: VolunteerStatus | null; readonly by: 'user' | 'run'; readonly clean: boolean }
  | { readonly type: 'failed'; readonly status: VolunteerStatus | null; readonly failure: Failure }

export interface Session {
  readonly state: ReadonlySignal<SessionState>
  /** this tab's member id, once it has joined */
  readonly self: ReadonlySignal<MemberId | null>
  start(name: string): Promise<void>
  stop(): void
}

interface Running {
  readonly worker: Worker
  readonly control: MessagePort
  network: PeerNetwork | undefined
}

/** Loads what the button needs while the visitor reads; nothing of it runs yet. */
export function prefetchWorker(): void {
  void fetch(workerUrl).catch(() => undefined)
}

export function createSession(): Session {
  const state = signal<SessionState>({ type: 'idle' })
  const self = signal<MemberId | null>(null)
  let running: Running | undefined
  const status = (): VolunteerStatus | null => ('status' in state.value ? state.value.status : null)

  function end(next: SessionState): void {
    running?.network?.stop()
    running?.control.close()
    running?.worker.terminate()
    running = undefined
    self.value = null
    state.value = next
  }

  async function openPeers(access: SignallingAccess, port: MessagePort): Promise<void> {
    const here = running
    self.value = access.self
    try {
      const [{ openPeerNetwork }, { servePeerNetwork }] = await Promise.all([import('../rtc-link.ts'), import('../link-bridge.ts')])
      const network = await openPeerNetwork(access)
      if (here === undefined || here !== running) return network.stop()
      here.network = network
      servePeerNetwork(port, network)
      tell(here, { type: 'peers-open' })
    } catch (error) {
      if (here !== undefined) tell(here, { type: 'peers-failed', failure: failureOf(error, 'link-lost') })
    }
  }

  function heard(message: FromWorker): void {
    switch (message.type) {
      case 'status':
        if (state.value.type === 'running' || state.value.type === 'stopping') state.value = { ...state.value, status: message.status }
        return
      case 'open-peers':
        return void openPeers(message.access, message.port)
      case 'ended':
        if (message.failure !== null) return end({ type: 'failed', status: status(), failure: message.failure })
        return end({ type: 'ended', status: status(), by: state.value.type === 'stopping' ? 'user' : 'run', clean: true })
      default:
        message satisfies never
    }
  }

  return {
    state,
    self,
    async start(name) {
      if (state.value.type === 'running' || state.value.type === 'stopping') return
      state.value = { type: 'running', status: null }
      try {
        await requestAdapter() // before anything is fetched: the commonest reason why it cannot work
      } catch (error) {
        return end({ type: 'failed', status: null, failure: failureOf(error, 'no-adapter') })
      }
      running = startWorker(name, heard, (message) => end({ type: 'failed', status: status(), failure: { code: 'internal', message } }))
    },
    stop() {
      if (running === undefined || state.value.type !== 'running') return
      const here = running
      state.value = { type: 'stopping', status: status() }
      tell(here, { type: 'stop' })
      setTimeout(() => {
        if (running === here) end({ type: 'ended', status: status(), by: 'user', clean: false })
      }, STOP_MS)
    },
  }
}

function startWorker(name: string, heard: (message: FromWorker) => void, broke: (message: string) => void): Running {
  const worker = new Worker(workerUrl, { type: 'module' })
  const { port1, port2 } = new MessageChannel()
  port1.onmessage = (event: MessageEvent<FromWorker>) => heard(event.data)
  worker.onerror = (event) => broke(event.message || 'its Worker could not be loaded')
  const begin: ToWorker = { type: 'begin', name, coordinatorUrl: location.origin, control: port2 }
  worker.postMessage(begin, [port2])
  return { worker, control: port1, network: undefined }
}

function tell(running: Running, message: ToWorker): void {
  running.control.postMessage(message)
}

function failureOf(error: unknown, otherwise: string): Failure {
  return { code: isGridError(error) ? error.code : otherwise, message: isGridError(error) ? error.message : describeError(error) }
}
