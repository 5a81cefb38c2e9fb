// Frozen matrices that stay in a device's memory as they are stored: before each call that reads one, an unpacking call
// makes it f32, for this call alone. Tables of tokens are unpacked by the row. Pure: call lists in, call lists out.

import { type FixedEntry, rowsOf } from '@starling-grid/model'
import { packedRow, type PackedStorage } from '@starling-grid/shaders'
import type { Graph } from './build.ts'
import { firstFreeStorage, type Call } from './storages.ts'
import type { Tensor } from './tensor.ts'

/** How frozen matrices can lie on a device. */
export interface Packing {
  readonly storage: PackedStorage
  /** packed, although there is room for f32; absent: where the memory does not suffice otherwise */
  readonly always?: boolean
  /** always, and large tables are read in pieces: the least memory */
  readonly pieces?: boolean
}

/** Words of four bytes that a fixed tensor takes: vectors and constants are f32 always. */
export function heldWords(entry: FixedEntry, storage: PackedStorage | undefined): number {
  if (!isMatrix(entry) || storage === undefined) return entry.length
  const { rows, columns } = rowsOf(entry)
  return rows * packedRow(columns, storage).words
}

export function isMatrix({ kind, shape }: Pick<FixedEntry, 'kind' | 'shape'>): boolean {
  return kind === 'frozen' && shape.length > 1
}

/** The same graph over packed matrices; the same bits, since unpacking is exact. */
export function packFrozen(graph: Graph, storage: PackedStorage): Graph {
  if (graph.packed !== undefined || !graph.fixed.some(isMatrix)) return graph
  const packer = new Packer(graph, storage)
  const packed = (calls: readonly Call[]): readonly Call[] => calls.flatMap((call) => packer.callsFor(call))
  const forward = packed(graph.forward)
  return {
    ...graph,
    packed: storage,
    forward,
    evaluation: graph.evaluation === graph.forward ? forward : packed(graph.evaluation),
    loss: packed(graph.loss),
    backward: packed(graph.backward),
    ...(graph.logits ? { logits: packed(graph.logits) } : {}),
  }
}

class Packer {
  readonly #fixed: readonly FixedEntry[]
  readonly #storage: PackedStorage
  #free: number

  constructor(graph: Graph, storage: PackedStorage) {
    this.#fixed = graph.fixed
    this.#storage = storage
    this.#free = firstFreeStorage(graph)
  }

  callsFor(call: Call): Call[] {
    const storage = this.#storage
    const operands = Object.entries(call.operands as Readonly<Record<string, Tensor | undefined>>)
    const matrices = operands.flatMap(([name, tensor]) =>
      tensor && this.#isPacked(tensor) ? [[name, tensor] as const] : [],
    )
    if (matrices.length === 0) return [call]
    if (call.kernel === 'embedding.forward') {
      const { ids, weight, y } = call.operands
      return [
        { kernel: 'unpack.rows', dims: { ...call.dims, storage }, operands: { ids, packed: this.#held(weight), y } },
      ]
    }
    const unpacked = matrices.map(([name, tensor]) => [name, this.#room(tensor)] as const)
    return [
      ...matrices.map(([, tensor], i): Call => {
        const y = unpacked[i]?.[1] ?? tensor
        return {
          kernel: 'unpack.forward',
          dims: { ...rowsOf(tensor), storage },
          operands: { packed: this.#held(tensor), y },
        }
      }),
      // The compiler cannot follow that the operands keep their names.
      { ...call, operands: { ...call.operands, ...Object.fromEntries(unpacked) } } as Call,
    ]
  }

  #isPacked({ role, offset }: Tensor): boolean {
    const entry = this.#fixed[offset]
    return role === 'fixed' && entry !== undefined && isMatrix(entry)
  }

  /** The matrix, or rows of it, as words. */
  #held(tensor: Tensor): Tensor {
    const { rows, columns } = rowsOf(tensor)
    const { words } = packedRow(columns, this.#storage)
    const { start } = tensor
    return {
      ...tensor,
      shape: [rows, words],
      size: rows * words,
      ...(start === undefined ? {} : { start: (start / columns) * words }),
    }
  }

  /** Another place for each call: only what is computed with exists as f32. */
  #room({ name, shape, size }: Tensor): Tensor {
    const id = this.#free++
    return { id, role: 'unpacked', name: `${name} as f32`, shape, size, shared: true, storage: id, offset: 0 }
  }
}
