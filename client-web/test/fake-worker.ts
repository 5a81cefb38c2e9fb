// Stands in for the training Worker: says what a test scripted, and ends when it is told to stop.
import type { VolunteerStatus } from '@starling-grid/volunteer'
import type { Page } from 'playwright-core'
import type { Failure } from '../src/worker-messages.ts'
import { VOLUNTEER_PATH } from './fixture-server.ts'

export const TRAINING: VolunteerStatus = {
  phase: 'computing',
  detail: '',
  job: null,
  adapter: { name: 'SwiftShader Device (Subzero)', vendor: 'google', software: true, executor: 'webgpu' },
  mode: 'ring',
  ring: { rank: 2, size: 5 },
  relayedLinks: 0,
  tcpLinks: 0,
  samplesPerSecond: 41.2,
  samplesCommitted: 1280,
  version: 42,
  loss: 0.3127,
  bytesSent: 81_400_000,
  bytesReceived: 80_900_000,
  error: null,
}

export interface FakeWorker {
  readonly statuses: readonly VolunteerStatus[]
  /** ends by itself with this, after the statuses */
  readonly failure?: Failure
  /** does not handle the message to stop, as inside a kernel */
  readonly hangs?: boolean
  /** ends at once, and says with which limits it was begun */
  readonly tellsLimits?: boolean
  /** joins as this member */
  readonly self?: string
}

export async function fakeWorker(page: Page, fake: FakeWorker): Promise<void> {
  const body = `(${script.toString()})(${JSON.stringify(fake)}, ${JSON.stringify(VOLUNTEER_PATH)})`
  await page.route('**/assets/train-worker-*.js', (route) => route.fulfill({ contentType: 'text/javascript', body }))
}

/** Runs in the Worker: nothing of this module exists there. */
function script(fake: FakeWorker, path: string): void {
  addEventListener('message', (event: MessageEvent<{ control: MessagePort; limits: unknown }>) => {
    const { control, limits } = event.data
    if (fake.tellsLimits === true)
      control.postMessage({ type: 'ended', failure: { code: 'internal', message: JSON.stringify(limits) } })
    const coordinator = new WebSocket(path)
    for (const status of fake.statuses) control.postMessage({ type: 'status', status })
    if (fake.self !== undefined) {
      const { port1 } = new MessageChannel()
      const access = { url: '', path: '', self: fake.self, token: '', iceServers: [] }
      control.postMessage({ type: 'open-peers', access, identity: {}, port: port1 }, [port1])
    }
    if (fake.failure !== undefined) control.postMessage({ type: 'ended', failure: fake.failure })
    control.onmessage = (message: MessageEvent<{ type: string }>) => {
      if (message.data.type !== 'stop' || fake.hangs === true) return
      if (coordinator.readyState === WebSocket.OPEN) coordinator.send('leave')
      control.postMessage({ type: 'ended', failure: null })
    }
  })
}
