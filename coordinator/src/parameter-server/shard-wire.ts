// Messages between the coordinator and a shard in a process of its own, over one WebSocket. Orders are JSON, vectors as
// bytes after the order that announces them. A shard answers every other order with one binary message, in their order.
// Both ends are the owner's (owner token); orders are checked all the same, before anything is allocated.
import { MAX_PART_NUMBERS } from '@starling-grid/model'
import { MAX_STATE_BYTES, OptimizerSchema, parse, parseJson, strict } from '@starling-grid/protocol'
import * as Type from 'typebox'
import type { Static } from 'typebox'
import type { ShardCommand } from './shard.ts'

/** floats of one message: below the limit of messages to the coordinator */
export const CHUNK_FLOATS = 32 * 1024
/** Bytes of an order: the layout of a model of some thousand tensors. */
const MAX_ORDER_BYTES = 4 * 1024 * 1024
/** Versions that a server keeps at most, generously. */
const MAX_VERSIONS = 64

/** of a number in a vector, or how many there are */
const Index = Type.Integer({ minimum: 0, maximum: MAX_STATE_BYTES / Float32Array.BYTES_PER_ELEMENT })
const PartLength = Type.Integer({ minimum: 0, maximum: MAX_PART_NUMBERS })
const EntrySchema = strict({
  name: Type.String({ maxLength: 200 }),
  shape: Type.Array(Index, { maxItems: 8 }),
  offset: Index,
  length: Index,
  kind: Type.Union([Type.Literal('trained'), Type.Literal('undecayed'), Type.Literal('statistic')]),
  momentum: Type.Optional(Type.Number({ minimum: 0, maximum: 1 })),
})
const VectorSchema = Type.Union([
  strict({ of: Type.Literal('gradient') }),
  strict({ of: Type.Literal('version'), index: Index }),
  strict({ of: Type.Literal('square'), atHead: Type.Boolean() }),
  strict({ of: Type.Literal('slot'), state: Type.Union([Type.Literal(0), Type.Literal(1)]), index: Index }),
])
export type VectorName = Static<typeof VectorSchema>
const part = { vector: VectorSchema, start: Index, count: Type.Integer({ minimum: 0, maximum: CHUNK_FLOATS }) }

const OrderSchema = Type.Union([
  /** makes the shard anew; its layout counts from the start of its range */
  strict({
    type: Type.Literal('setup'),
    optimizer: OptimizerSchema,
    versions: Type.Integer({ minimum: 2, maximum: MAX_VERSIONS }),
    compensated: Type.Boolean(),
    rounds: Type.Optional(Type.Literal(true)),
    layout: strict({ total: Index, trained: Index, entries: Type.Array(EntrySchema, { maxItems: 20_000 }) }),
  }),
  /** the next message is these elements */
  strict({ type: Type.Literal('write'), ...part }),
  /**
   * the next message is so many encoded numbers; those after the first `skip` are of the push, from element `start` on
   */
  strict({
    type: Type.Literal('decode'),
    encoding: Type.Union([Type.Literal('f16'), Type.Literal('int8'), Type.Literal('sparse2')]),
    length: PartLength,
    skip: PartLength,
    start: Index,
    count: PartLength,
  }),
  /** → these elements */
  strict({ type: Type.Literal('read'), ...part }),
  /** → the numbers that the shard answers with, f64 */
  strict({
    type: Type.Literal('load'),
    step: Type.Integer({ minimum: 0 }),
    scalars: Type.Array(Type.Number(), { maxItems: 8 }),
  }),
  strict({
    type: Type.Literal('prepare'),
    targets: Type.Number(),
    head: Index,
    base: Index,
    strength: Type.Number(),
    first: Type.Boolean(),
  }),
  strict({ type: Type.Literal('accumulate'), factor: Type.Number(), first: Type.Boolean() }),
  strict({ type: Type.Literal('mean'), targets: Type.Number() }),
  strict({ type: Type.Literal('apply'), factor: Type.Number(), from: Index, to: Index }),
])
export type ShardOrder = Static<typeof OrderSchema>

/** @throws GridError 'message-malformed', 'message-too-large' */
export function parseOrder(text: string): ShardOrder {
  return parse(OrderSchema, parseJson(text, MAX_ORDER_BYTES, 'the order'), 'the order')
}

/** Float64Array is no JSON. */
export function orderOf(command: ShardCommand): ShardOrder {
  return command.type === 'load' ? { ...command, scalars: [...command.scalars] } : command
}

/** Parts of a vector that fit a message each. */
export function chunksOf(length: number): { readonly start: number; readonly count: number }[] {
  return Array.from({ length: Math.ceil(length / CHUNK_FLOATS) }, (_, i) => ({
    start: i * CHUNK_FLOATS,
    count: Math.min(CHUNK_FLOATS, length - i * CHUNK_FLOATS),
  }))
}
