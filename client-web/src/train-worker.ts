// The Worker in which a tab trains, so that the page stays quick. It uses the volunteer and its host, not the pages.
import { GridError, isErrorCode } from '@starling-grid/protocol'
import { createVolunteer, type PeerNetwork, type SignallingAccess } from '@starling-grid/volunteer'
import { createWebHost } from './host.ts'
import { bridgedPeerNetwork } from './link-bridge.ts'
import { openPrivateKey } from './signer.ts'
import { type Failure, failureOf, type FromWorker, type ToWorker } from './worker-messages.ts'

addEventListener('message', (event: MessageEvent<ToWorker>) => {
  if (event.data.type === 'begin') void train(event.data)
})

async function train(begin: Extract<ToWorker, { type: 'begin' }>): Promise<void> {
  const { name, coordinatorUrl, limits, job, executor, sentFor, invite, control } = begin
  const { memoryBytes, uploadBytesPerHour, diskBytes, relaysOnly } = limits
  const tell = (message: FromWorker, transfer: Transferable[] = []): void => control.postMessage(message, transfer)
  const peers = new WindowPeers(tell)
  let hidden = false
  const host = await createWebHost({
    coordinatorUrl,
    openPeerNetwork: (access) => peers.open(access),
    isHidden: () => hidden,
    limits: { memoryBytes, uploadBytesPerHour },
    diskBytes,
    relaysOnly,
    leaveFor: (url, forJob) => tell({ type: 'elsewhere', url, job: forJob }),
    executor,
  })
  const volunteer = createVolunteer(host, {
    name,
    invite,
    ...(job === undefined ? {} : { job }),
    sentFor,
    onStatus: (status) => tell({ type: 'status', status }),
  })
  control.onmessage = (event: MessageEvent<ToWorker>) => {
    if (event.data.type === 'stop') void volunteer.stop()
    else if (event.data.type === 'hidden') hidden = event.data.hidden
    else peers.answered(event.data)
  }
  tell({ type: 'ended', failure: await volunteer.run().then(() => null, failureOf) })
}

/** The window's peer network, asked for over the control port and then used over one of its own. */
class WindowPeers {
  readonly #tell: (message: FromWorker, transfer: Transferable[]) => void
  #waiting: { resolve: () => void; reject: (error: GridError) => void } | undefined

  constructor(tell: (message: FromWorker, transfer: Transferable[]) => void) {
    this.#tell = tell
  }

  async open(access: SignallingAccess): Promise<PeerNetwork> {
    const { identity, ...told } = access
    if (identity === undefined) throw new Error('internal: links of a tab prove who they are')
    const { publicKey, salt } = identity
    const privateKey = await openPrivateKey()
    const { port1, port2 } = new MessageChannel()
    const opened = new Promise<void>((resolve, reject) => {
      this.#waiting = { resolve, reject }
    })
    this.#tell({ type: 'open-peers', access: told, identity: { publicKey, salt, privateKey }, port: port1 }, [port1])
    await opened
    return bridgedPeerNetwork(port2)
  }

  answered(message: ToWorker): void {
    if (message.type === 'peers-open') this.#waiting?.resolve()
    if (message.type === 'peers-failed') this.#waiting?.reject(asGridError(message.failure))
  }
}

function asGridError(failure: Failure): GridError {
  return new GridError(isErrorCode(failure.code) ? failure.code : 'link-lost', failure.message)
}
