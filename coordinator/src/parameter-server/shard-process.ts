// `starling ps`: one key range of a coordinator's parameter server in this process. Dials until it is stopped.
import { CLOSE_POLICY, describeError, GridError, ROUTES, systemClock } from '@starling-grid/protocol'
import { WebSocket } from 'ws'
import { ShardHost } from './shard-host.ts'
import { readRange } from './shard-processes.ts'

export { readRange }

/** ms before a coordinator that is away is dialled again */
const RETRY_MS = 2000
/** Bytes of an order; vectors come in smaller pieces. */
const MAX_PAYLOAD = 4 * 1024 * 1024
const UNAUTHORIZED = 401

export interface ShardProcessOptions {
  readonly url: string
  /** I/N */
  readonly range: string
  /** the owner's */
  readonly token: string
  readonly log: (line: string) => void
}

/** Resolves when `signal` says so. @throws GridError when dialling again makes no sense */
export async function serveShard(options: ShardProcessOptions, signal: AbortSignal): Promise<void> {
  readRange(options.range)
  while (!signal.aborted) {
    const why = await connection(options, signal)
    if (signal.aborted) return
    options.log(`${why}; trying again`)
    await systemClock.sleep(RETRY_MS, signal)
  }
}

/** One connection, from dialling to its end; resolves with why it ended. */
function connection({ url, range, token, log }: ShardProcessOptions, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(
      `${url.replace(/^http/, 'ws').replace(/\/$/, '')}${ROUTES.parameterServer}?range=${encodeURIComponent(range)}`,
      { headers: { authorization: `Bearer ${token}` }, maxPayload: MAX_PAYLOAD, perMessageDeflate: false },
    )
    const host = new ShardHost()
    const stop = (): void => socket.close()
    signal.addEventListener('abort', stop, { once: true })
    let why = 'the coordinator does not answer'
    socket.on('open', () => log(`range ${range} of the parameter server at ${url}`))
    socket.on('message', (data, isBinary) => {
      try {
        const answer = take(host, data, isBinary)
        if (answer !== undefined) socket.send(answer)
      } catch (error) {
        log(`an order was refused: ${describeError(error)}`)
        socket.close(CLOSE_POLICY, 'an order was refused')
      }
    })
    socket.on('unexpected-response', (_, { statusCode }) => {
      if (statusCode === UNAUTHORIZED)
        reject(
          new GridError(
            'token-required',
            `expected the owner token of ${url}, got another; take the one that it printed at start`,
          ),
        )
      socket.terminate()
    })
    socket.on('error', (error) => {
      why = describeError(error)
    })
    socket.on('close', (code, reason) => {
      signal.removeEventListener('abort', stop)
      if (code === CLOSE_POLICY && reason.length > 0) reject(new GridError('usage', String(reason)))
      resolve(why)
    })
  })
}

function take(host: ShardHost, data: unknown, isBinary: boolean): Uint8Array | undefined {
  if (!(data instanceof Buffer)) throw new GridError('message-malformed', 'expected a whole message, got a fragment')
  return isBinary ? void host.received(data) : host.ordered(String(data))
}
