// The shard's end of shard-wire.ts: orders and bytes in, answers out. Holds one key range; independent of sockets.
import type { ParameterLayout } from '@starling-grid/model'
import { GridError } from '@starling-grid/protocol'
import { allocate, type ServerMemory } from './memory.ts'
import { parseOrder, type ShardOrder, type VectorName } from './shard-wire.ts'
import { Shard } from './shard.ts'

const NOTHING = new Uint8Array(0)

interface HeldRange {
  readonly memory: ServerMemory
  readonly shard: Shard
}

export class ShardHost {
  #held: HeldRange | undefined
  /** where the bytes that come next belong */
  #target: Float32Array | undefined

  /** The answer, if the order has one. @throws GridError 'message-malformed', 'message-unexpected' */
  ordered(text: string): Uint8Array | undefined {
    if (this.#target !== undefined)
      throw new GridError('message-unexpected', 'expected the announced bytes of a vector, got an order')
    const order = parseOrder(text)
    switch (order.type) {
      case 'setup':
        this.#held = setUp(order)
        return NOTHING
      case 'write':
        this.#target = this.#part(order)
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

  /** @throws GridError 'message-unexpected' */
  received(bytes: Uint8Array): void {
    const target = this.#target
    this.#target = undefined
    if (target === undefined || bytes.byteLength !== target.byteLength)
      throw new GridError(
        'message-unexpected',
        `expected ${target?.byteLength ?? 'no'} announced bytes, got ${bytes.byteLength}`,
      )
    new Uint8Array(target.buffer, target.byteOffset, target.byteLength).set(bytes)
  }

  get #required(): HeldRange {
    if (this.#held === undefined)
      throw new GridError('message-unexpected', 'expected an order to set this shard up first, got another')
    return this.#held
  }

  #part({ vector, start, count }: Extract<ShardOrder, { type: 'read' | 'write' }>): Float32Array {
    const whole = vectorOf(this.#required.memory, vector)
    if (whole === undefined || start + count > whole.length)
      throw new GridError(
        'message-malformed',
        `expected a range within this shard's ${vector.of}, got ${count} elements from ${start} on`,
      )
    return whole.subarray(start, start + count)
  }
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
