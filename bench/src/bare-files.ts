// The least that serves files over HTTP: the one that is asked for, streamed.
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

const server = createServer((request, response) => {
  const file = decodeURIComponent(request.url?.slice(2) ?? '')
  void stat(file).then(({ size }) => {
    response.setHeader('content-length', size)
    createReadStream(file).pipe(response)
  })
})
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo
  process.send?.({ url: `http://127.0.0.1:${port}` })
})
process.once('disconnect', () => process.exit())
