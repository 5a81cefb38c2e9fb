// A link peer in a tab: the test calls `linkPeer.…`, or `workerPeer.…` for one in a Worker, and offers `callFarEnd`
// there.
import type { SignallingAccess } from '@starling-grid/volunteer'
import { servePeerNetwork } from '../../client-web/src/link-bridge.ts'
import { openPeerNetwork } from '../../client-web/src/rtc-link.ts'
import { dialRelaySocket } from '../../client-web/src/socket.ts'
import type { WorkerMessage } from './link-peer-worker.ts'
import { linkPeer, type LinkPeerHost } from './link-peer.ts'

type Call = (method: string, args: readonly unknown[]) => Promise<unknown>

declare global {
  interface Window {
    callPeer: Call
    callWorkerPeer: Call
    callFarEnd: LinkPeerHost['callFarEnd']
  }
}

const commands = linkPeer({
  openPeerNetwork,
  dialRelay: dialRelaySocket,
  callFarEnd: (command, args) => window.callFarEnd(command, args),
})
window.callPeer = async (method, args) => commands[method]?.(...(args as never[]))

let worker: Worker | undefined
const asked = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>()
let lastRequest = 0

window.callWorkerPeer = (method, args) =>
  new Promise((resolve, reject) => {
    worker ??= startWorker()
    asked.set(++lastRequest, { resolve, reject })
    worker.postMessage({ id: lastRequest, method, args } satisfies WorkerMessage)
  })

function startWorker(): Worker {
  const started = new Worker('/link-peer-worker.js', { type: 'module' })
  started.onmessage = async ({ data: { id, method, args = [], value, error } }: MessageEvent<WorkerMessage>) => {
    if (method === undefined)
      return error === undefined ? asked.get(id)?.resolve(value) : asked.get(id)?.reject(new Error(error))
    const answer = await serveWorker(method, args).then(
      (result) => ({ value: result }),
      (reason: Error) => ({ error: reason.message }),
    )
    started.postMessage({ id, ...answer } satisfies WorkerMessage)
  }
  return started
}

async function serveWorker(method: string, args: readonly unknown[]): Promise<unknown> {
  const [first, second] = args
  if (method === 'far') return window.callFarEnd(String(first), second as unknown[])
  servePeerNetwork(second as MessagePort, await openPeerNetwork(first as SignallingAccess))
  return undefined
}
