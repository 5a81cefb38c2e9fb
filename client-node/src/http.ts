// Requests to the coordinator from a Node process. Node's own fetch gives an upload up after 300 s, however fast its
// bytes move. A state of some hundred megabytes takes longer on a home line.
import { type ClientRequest, type IncomingMessage, request as plainRequest } from 'node:http'
import { request as tlsRequest } from 'node:https'
import { Readable } from 'node:stream'
import type { SendRequest } from '@starling-grid/volunteer'
import { tlsTrust } from './pinned-certificate.ts'

/** HTTP statuses whose answers have no body, not even an empty one */
const BODILESS: ReadonlySet<number> = new Set([204, 205, 304])

/** Answers as they come: nothing is decoded, and no redirect is followed. */
export const sendRequest: SendRequest = (url, { method = 'GET', headers = {}, body, signal }) =>
  new Promise((resolve, reject) => {
    const open = url.startsWith('https:') ? tlsRequest : plainRequest
    const length = body === undefined ? {} : { 'content-length': body.byteLength }
    const asked: ClientRequest = open(url, { ...tlsTrust(), method, headers: { ...headers, ...length }, signal })
    asked.once('error', reject)
    asked.once('response', (response) => resolve(responseOf(response)))
    asked.end(body)
  })

function responseOf(message: IncomingMessage): Response {
  const { statusCode: status = 0, headers } = message
  const fields = Object.entries(headers).flatMap(([name, value]) =>
    [value ?? []].flat().map((one): [string, string] => [name, one]),
  )
  if (!BODILESS.has(status))
    return new Response(Readable.toWeb(message) as ReadableStream<Uint8Array>, { status, headers: fields })
  message.resume()
  return new Response(null, { status, headers: fields })
}
