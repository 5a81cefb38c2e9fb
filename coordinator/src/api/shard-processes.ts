// Where `starling ps` processes dial: the owner's, by token.
import { CLOSE_POLICY, GridError, isGridError, ROUTES } from '@starling-grid/protocol'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { ShardProcesses, ShardSeat } from '../parameter-server/shard-processes.ts'
import type { Access } from './access.ts'

/** Processes that one parameter server may be cut into. */
const MAX_SHARDS = 64

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

/** "0/2" is the first of two. @throws GridError 'message-malformed' */
export function readRange(text: string): ShardSeat {
  const [, index = '', of = ''] = /^(\d{1,2})\/(\d{1,2})$/.exec(text) ?? []
  const seat = { index: Number(index), of: Number(of) }
  if (of === '' || seat.of > MAX_SHARDS || seat.index >= seat.of)
    throw new GridError(
      'message-malformed',
      `expected a range I/N with 0 ≤ I < N ≤ ${MAX_SHARDS}, got "${text.slice(0, 20)}"`,
    )
  return seat
}
