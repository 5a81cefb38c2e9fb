// A link peer in a Web Worker, over the bridge to the window's network: what a training tab does.
import type { PeerNetwork } from '@starling-grid/volunteer'
import { bridgedPeerNetwork } from '../../client-web/src/link-bridge.ts'
import { dialRelaySocket } from '../../client-web/src/socket.ts'
import { linkPeer } from './link-peer.ts'

/** A request, or the answer to one. The window asks with names of commands; the Worker asks 'open' and 'far'. */
export interface WorkerMessage {
  readonly id: number
  readonly method?: string
  readonly args?: readonly unknown[]
  readonly value?: unknown
  readonly error?: string
}

const asked = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>()
let lastRequest = 0

function ask(method: string, args: readonly unknown[], transfer: Transferable[] = []): Promise<unknown> {
  return new Promise((resolve, reject) => {
    asked.set(++lastRequest, { resolve, reject })
    postMessage({ id: lastRequest, method, args } satisfies WorkerMessage, { transfer })
  })
}

const commands = linkPeer({
  async openPeerNetwork(access): Promise<PeerNetwork> {
    const { port1, port2 } = new MessageChannel()
    await ask('open', [access, port1], [port1])
    return bridgedPeerNetwork(port2)
  },
  dialRelay: dialRelaySocket,
  callFarEnd: (command, args) => ask('far', [command, args]),
})

addEventListener('message', async ({ data: { id, method, args = [], value, error } }: MessageEvent<WorkerMessage>) => {
  if (method === undefined)
    return error === undefined ? asked.get(id)?.resolve(value) : asked.get(id)?.reject(new Error(error))
  const answer = await Promise.resolve(commands[method]?.(...(args as never[]))).then(
    (result) => ({ value: result }),
    (reason: Error) => ({ error: reason.message }),
  )
  postMessage({ id, ...answer } satisfies WorkerMessage)
})
