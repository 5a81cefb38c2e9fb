// The frozen parameters of a model as an import stores them, without shards: for tests and measurements.
import { fixedEntries, type ModelSpec, packRows, readRows, rowsOf, type Storage, storeRows } from '@starling-grid/model'
import type { FrozenSource } from '../src/graph/frozen-source.ts'

/** `values`: those of a parameter (length,), which are stored anew each time that they are read */
export function storedSource(
  spec: ModelSpec,
  storage: Storage,
  values: (name: string, length: number) => Float32Array,
): FrozenSource {
  const entries = new Map(fixedEntries(spec).map((entry) => [entry.name, entry]))
  const found = (name: string) => {
    const entry = entries.get(name)
    if (entry === undefined) throw new Error(`internal: no frozen parameter ${name}`)
    const { shape, length } = entry
    return { ...rowsOf(entry), length, tensors: new Map(storeRows(name, values(name, length), { shape, storage })) }
  }
  return {
    read: async (name) => {
      const { tensors, ...size } = found(name)
      return readRows(name, tensors, size)
    },
    packed:
      storage === 'f32'
        ? undefined
        : {
            storage,
            read: async (name) => {
              const { tensors, ...size } = found(name)
              return packRows(name, tensors, { ...size, storage })
            },
          },
  }
}
