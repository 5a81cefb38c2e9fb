// An end of a measured link as a process of its own, which takes orders from its parent. Also sends and counts bare
// packets, which show what the line itself carries.
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { openPeerNetwork } from '@starling-grid/client-node'
import type { Arrived, LineOrders } from './end.ts'
import { lineEnd } from './end.ts'
import type { Face } from './shaped-path.ts'

export interface LineOrder {
  readonly name: string
  readonly argument: unknown
}

export interface BarePush {
  readonly to: Face
  readonly megabits: number
}

export type LineAnswer = { readonly value: unknown } | { readonly error: string }

/** Bytes of a bare packet, as of a full one of WebRTC; ms between bursts of them, which are a fifth above the line. */
const PACKET_BYTES = 1200
const BURST_MS = 2
const ABOVE = 1.2

/** `greet` shows the path who stands behind a face. */
function bareEnd(): LineOrders {
  const socket = createSocket('udp4')
  let pushing = false
  let bytes = 0
  socket.on('message', (packet) => {
    bytes += packet.length
  })
  const send = ({ port, address }: Face, length: number): void => socket.send(Buffer.alloc(length), port, address)
  return {
    async bareGreet(to: Face) {
      socket.bind()
      await once(socket, 'listening')
      socket.setRecvBufferSize(4 * 1024 * 1024)
      send(to, 1)
    },
    async barePush({ to, megabits }: BarePush) {
      pushing = true
      const began = performance.now()
      void (async () => {
        for (let sent = 0; pushing; await delay(BURST_MS))
          for (const due = (performance.now() - began) * megabits * 125 * ABOVE; sent < due; sent += PACKET_BYTES)
            send(to, PACKET_BYTES)
      })()
    },
    async bareHalt() {
      pushing = false
    },
    async bareArrived(): Promise<Arrived> {
      return { bytes, at: performance.now() }
    },
  }
}

const orders: LineOrders = { ...lineEnd((access) => openPeerNetwork(access, false)), ...bareEnd() }

process.on('message', async ({ name, argument }: LineOrder) => {
  const answer = await (
    orders[name]?.(argument as never) ?? Promise.reject(new Error(`internal: no order ${name}`))
  ).then(
    (value): LineAnswer => ({ value }),
    (error: Error): LineAnswer => ({ error: error.stack ?? error.message }),
  )
  process.send?.(answer)
})
process.once('disconnect', () => process.exit())
