// What TLS alone moves between ranks: `node:tls` as any program uses it, a socket to the successor and one from the
// predecessor, bytes in and out without a look at them. The least that a link over TCP can cost.
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { connect, createServer, type TLSSocket } from 'node:tls'
import { ownCertificate } from '@starling-grid/client-node/own-certificate'
import type { Communicator } from '@starling-grid/volunteer'

/** Bytes of one write: those of a frame of the library. */
const WRITE_BYTES = 60 * 1024

/** Sends so many bytes of a vector to the successor, and resolves when as many came from the predecessor. */
export type MoveBytes = (vector: Uint8Array<ArrayBuffer>, bytes: number) => Promise<void>

export async function openRawTls(group: Communicator): Promise<MoveBytes> {
  const { cert, key } = ownCertificate()
  const server = createServer({ cert, key, minVersion: 'TLSv1.3' }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const arrival = once(server, 'secureConnection')
  const ports = await group.allGather(Int32Array.of((server.address() as AddressInfo).port))
  const to = connect({
    host: '127.0.0.1',
    port: ports[(group.rank + 1) % group.size] ?? 0,
    rejectUnauthorized: false,
    ciphers: 'TLS_AES_128_GCM_SHA256',
  })
  await once(to, 'secureConnect')
  const [from] = (await arrival) as [TLSSocket]
  server.close()
  for (const socket of [to, from]) socket.setNoDelay(true).unref()
  return mover(to, from)
}

function mover(to: TLSSocket, from: TLSSocket): MoveBytes {
  let [due, came] = [0, 0]
  let wake: () => void = () => undefined
  from.on('data', (piece: Buffer) => {
    came += piece.byteLength
    wake()
  })
  return async (vector, bytes) => {
    due += bytes
    for (let sent = 0; sent < bytes; sent += WRITE_BYTES) {
      const length = Math.min(WRITE_BYTES, bytes - sent)
      const at = sent % (vector.byteLength - WRITE_BYTES)
      if (!to.write(vector.subarray(at, at + length))) await once(to, 'drain')
    }
    while (came < due)
      await new Promise<void>((resolve) => {
        wake = resolve
      })
  }
}
