// The shard's end of shard-wire.ts: orders and bytes in, answers out. Holds one key range; independent of sockets.
import { decodeVector, type ParameterLayout } from '@starling-grid/model'
import { GridError } from '@starling-grid/protocol'
import { allocate, type ServerMemory } from './memory.ts'
import { parseOrder, type ShardOrder, type VectorName } from './shard-wire.ts'
import { Shard } from './shard.ts'

const NOTHING = new Uint8Array(0)

type VectorPart = Pick<Extract<ShardOrder, { type: 'write' }>, 'vector' | 'start' | 'count'>
type DecodeOrder = Extract<ShardOrder, { type: 'decode' }>

interface AnnouncedBytes {
  /** where they belong */
  readonly vector: Float32Array
  /** undefined: they are its numbers */
  readonly encoded: DecodeOrder | undefined
}

interface HeldRange {
  readonly memory: ServerMemory
  readonly shard: Shard
}

export class ShardHost {
  #held: HeldRange | undefined
  /** what is done with the bytes that come next */
  #announced: AnnouncedBytes | undefined

  /** The answer, if the order has one. @throws GridError 'message-malformed', 'message-unexpected' */
  ordered(text: string): Uint8Array | undefined {
    if (this.#announced !== undefined)
      throw new GridError('message-unexpected', 'expected the announced bytes of a vector, got an order')
    const order = parseOrder(text)
    switch (order.type) {
      case 'setup':
        this.#held = setUp(order)
        return NOTHING
      case 'write':
        this.#announced = { vector: this.#part(order), encoded: undefined }
        return undefined
      case 'decode':
        this.#announced = { vector: this.#part({ vector: { of: 'gradient' }, ...order }), encoded: order }
        return undefined
      case 'read':
        return bytesOf(this.#part(order).slice())
      default:
        return bytesOf(
          this.#required.shard.run(
            order.type === 'load' ? { ...order, scalars: Float64Array.from(order.scalars) } : order,
          ),
        )
    }
  }

  /** @throws GridError 'message-unexpected'; for encoded numbers also 'gradient-shape', 'message-malformed' */
  received(bytes: Uint8Array): void {
    const { vector, encoded } = this.#announced ?? {}
    this.#announced = undefined
    if (vector !== undefined && encoded !== undefined) return decodeInto(vector, bytes, encoded)
    if (vector === undefined || bytes.byteLength !== vector.byteLength)
      throw new GridError(
        'message-unexpected',
        `expected ${vector?.byteLength ?? 'no'} announced bytes, got ${bytes.byteLength}`,
      )
    new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength).set(bytes)
  }

  get #required(): HeldRange {
    if (this.#held === undefined)
      throw new GridError('message-unexpected', 'expected an order to set this shard up first, got another')
    return this.#held
  }

  #part({ vector, start, count }: VectorPart): Float32Array {
    const whole = vectorOf(this.#required.memory, vector)
    if (whole === undefined || start + count > whole.length)
      throw new GridError(
        'message-malformed',
        `expected a range within this shard's ${vector.of}, got ${count} elements from ${start} on`,
      )
    return whole.subarray(start, start + count)
  }
}

/** @throws GridError 'gradient-shape', 'message-malformed' */
function decodeInto(vector: Float32Array, bytes: Uint8Array, { encoding, length, skip }: DecodeOrder): void {
  if (skip + vector.length > length)
    throw new GridError(
      'message-malformed',
      `expected at most ${length} encoded numbers, got ${vector.length} behind ${skip}`,
    )
  const values = new Float32Array(length)
  decodeVector(bytes, encoding, values)
  vector.set(values.subarray(skip, skip + vector.length))
}

function setUp({
  layout: { total, trained, entries },
  optimizer,
  versions,
  compensated,
  rounds,
}: Extract<ShardOrder, { type: 'setup' }>): HeldRange {
  const fits = trained <= total && entries.every(({ offset, length }) => offset + length <= total)
  if (!fits) throw new GridError('message-malformed', 'expected a layout that fits into its range, got a longer one')
  // What a parameter starts from is no business of a shard.
  const layout: ParameterLayout = {
    total,
    trained,
    entries: entries.map((entry) => ({ ...entry, initial: { type: 'constant', value: 0 } })),
  }
  const rule = { layout, optimizer, rounds: rounds === true }
  const memory = allocate(rule, { versions, compensated, shared: false })
  return { memory, shard: new Shard({ rule, range: { start: 0, end: total }, memory }) }
}

/** The vector of a server or of one of its shards. */
export function vectorOf(
  { gradient, versions, slots, square, squareAtHead }: ServerMemory,
  name: VectorName,
): Float32Array | undefined {
  if (name.of === 'gradient') return gradient
  if (name.of === 'square') return name.atHead ? squareAtHead : square
  return name.of === 'version' ? versions[name.index] : slots[name.state][name.index]
}

function bytesOf({ buffer, byteOffset, byteLength }: Float32Array | Float64Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength)
}
