// A bridged link behaves like every other: the suite runs over the bridge, on top of links in memory.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GridError, memberId } from '@starling-grid/protocol'
import type { PeerLink, PeerNetwork } from '@starling-grid/volunteer'
import { farEndOf, MemoryGrid, peerLinkCases } from '@starling-grid/volunteer/testing'
import { bridgedPeerNetwork, servePeerNetwork } from '../src/link-bridge.ts'

const near = memberId('near')
const far = memberId('far')
const patience = AbortSignal.timeout(60_000)

interface Bridge {
  readonly grid: MemoryGrid
  /** the near member, as its Worker sees it */
  readonly network: PeerNetwork
  readonly other: PeerNetwork
  close(): void
}

function openBridge(): Bridge {
  const grid = new MemoryGrid()
  const { port1, port2 } = new MessageChannel()
  servePeerNetwork(port1, grid.join(near))
  const network = bridgedPeerNetwork(port2)
  const close = (): void => {
    port1.close()
    port2.close()
  }
  return { grid, network, other: grid.join(far), close }
}

/** Dials until the Worker's message that it listens has crossed its port: before, dials are refused. */
async function dialListener(other: PeerNetwork): Promise<PeerLink> {
  for (;;) {
    const link = await other.dial(near, patience).catch(() => undefined)
    if (link !== undefined) return link
    patience.throwIfAborted()
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}

for (const { name, run } of peerLinkCases)
  test(`over the bridge, dialled by the Worker: ${name}`, async () => {
    const { network, other, close } = openBridge()
    const accepted = new Promise<PeerLink>((resolve) => {
      other.onLink = resolve
    })
    await run(await network.dial(far, patience), farEndOf(await accepted))
    close()
  })

for (const { name, run } of peerLinkCases)
  test(`over the bridge, accepted by the Worker: ${name}`, async () => {
    const { network, other, close } = openBridge()
    const accepted = new Promise<PeerLink>((resolve) => {
      network.onLink = resolve
    })
    await run(await dialListener(other), farEndOf(await accepted))
    close()
  })

test('a dial that the window cannot make fails in the Worker with the same code', async () => {
  const { network, close } = openBridge()
  await assert.rejects(
    network.dial(far, patience),
    (error) => error instanceof GridError && error.code === 'link-timeout',
  )
  close()
})

test('an aborted dial rejects with the signal’s reason and leaves no link behind', async () => {
  const { network, other, close } = openBridge()
  const accepted = new Promise<PeerLink>((resolve) => {
    other.onLink = resolve
  })
  const abort = new AbortController()
  const dial = network.dial(far, abort.signal)
  abort.abort(new Error('changed my mind'))
  await assert.rejects(dial, /changed my mind/)
  const link = await Promise.race([accepted, new Promise<undefined>((resolve) => setTimeout(resolve, 50))])
  if (link !== undefined)
    await new Promise((resolve) => {
      link.onClose = resolve
    })
  close()
})

test('links are refused until the Worker listens', async () => {
  const { network, other, close } = openBridge()
  await assert.rejects(other.dial(near, patience))
  network.onLink = () => {}
  await dialListener(other)
  close()
})

test('a stop in the Worker stops the network in the window', async () => {
  const { network, other, close } = openBridge()
  other.onLink = () => {}
  const link = await network.dial(far, patience)
  const closed = new Promise<string>((resolve) => {
    link.onClose = resolve
  })
  network.stop()
  assert.match(await closed, /stopped/)
  close()
})
