// A link peer as a Node process of its own: commands come and answers go over the channel to the parent.
import { openPeerNetwork } from '../../client-node/src/rtc-link.ts'
import { dialRelaySocket } from '../../client-node/src/socket.ts'
import { linkPeer } from './link-peer.ts'

interface Request {
  readonly type: 'call' | 'answer'
  readonly id: number
  readonly method: string
  readonly args: never[]
  readonly value?: unknown
  readonly error?: string
}

const farCalls = new Map<number, (answer: Request) => void>()
let lastCall = 0

const commands = linkPeer({
  openPeerNetwork: (access) => openPeerNetwork(access, process.env['STARLING_TCP'] === 'off' ? false : {}),
  dialRelay: dialRelaySocket,
  callFarEnd: (method, args) =>
    new Promise((resolve, reject) => {
      const id = ++lastCall
      farCalls.set(id, ({ value, error }) => (error === undefined ? resolve(value) : reject(new Error(error))))
      process.send?.({ type: 'call', id, method, args })
    }),
})

process.on('message', (request: Request) => {
  if (request.type === 'answer') return farCalls.get(request.id)?.(request)
  void answer(request)
})

async function answer({ id, method, args }: Request): Promise<void> {
  const told = await Promise.resolve(commands[method]?.(...args)).then(
    (value) => ({ value }),
    (error: Error) => ({ error: error.stack ?? error.message }),
  )
  // `stop` ends a command that hung, after this process has closed its channel to the parent.
  if (process.connected) process.send?.({ type: 'answer', id, ...told })
  // The process must end by itself: nothing of a stopped network may hold it.
  if (method === 'stop') process.disconnect()
}
