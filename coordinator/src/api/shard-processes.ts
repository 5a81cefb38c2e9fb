// Where `starling ps` processes dial: the owner's, by token.
import { CLOSE_POLICY, isGridError, ROUTES } from '@starling-grid/protocol'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { readRange, type ShardProcesses, type ShardSeat } from '../parameter-server/shard-processes.ts'
import type { Access } from './access.ts'

export function registerShardProcesses(
  app: FastifyInstance,
  { processes, access }: { readonly processes: ShardProcesses; readonly access: Access },
): void {
  app.get(
    ROUTES.parameterServer,
    {
      websocket: true,
      onRequest: async (request) => {
        access.requireOwner(request)
        seatOf(request)
      },
    },
    (socket, request) => {
      socket.on('error', () => {}) // close follows
      try {
        const close = (): void => socket.close(CLOSE_POLICY, 'token-required')
        socket.on('close', access.holdOpen(access.requireOwner(request), close))
        processes.admit(socket, seatOf(request))
      } catch (error) {
        if (!isGridError(error)) throw error
        socket.close(CLOSE_POLICY, error.message)
      }
    },
  )
}

/** @throws GridError 'message-malformed' */
function seatOf({ query }: FastifyRequest): ShardSeat {
  const { range } = query as { range?: unknown }
  return readRange(typeof range === 'string' ? range : '')
}
