// tf.train.Example → the cells of a row, decoded by protobufjs. Source: TensorFlow's example.proto and feature.proto.
import protobuf from 'protobufjs/light.js'
import type { TableCell } from './table.ts'

interface Feature {
  readonly bytesList?: { readonly value: readonly Uint8Array[] }
  readonly floatList?: { readonly value: readonly number[] }
  readonly int64List?: { readonly value: readonly (number | { toNumber(): number })[] }
}

/** Features of one sample. */
const MAX_FEATURES = 100_000

const PROTOCOL = {
  nested: {
    BytesList: { fields: { value: { rule: 'repeated', type: 'bytes', id: 1 } } },
    FloatList: { fields: { value: { rule: 'repeated', type: 'float', id: 1, options: { packed: true } } } },
    Int64List: { fields: { value: { rule: 'repeated', type: 'int64', id: 1, options: { packed: true } } } },
    Feature: {
      oneofs: { kind: { oneof: ['bytesList', 'floatList', 'int64List'] } },
      fields: {
        bytesList: { type: 'BytesList', id: 1 },
        floatList: { type: 'FloatList', id: 2 },
        int64List: { type: 'Int64List', id: 3 },
      },
    },
    Features: { fields: { feature: { keyType: 'string', type: 'Feature', id: 1 } } },
    Example: { fields: { features: { type: 'Features', id: 1 } } },
  },
}
const EXAMPLE = protobuf.Root.fromJSON(PROTOCOL).lookupType('Example')

/** A feature of one value is that value, others are lists. @throws Error for what is no Example */
export function exampleOf(data: Uint8Array): ReadonlyMap<string, TableCell> {
  const { features } = EXAMPLE.decode(data) as unknown as {
    readonly features?: { readonly feature?: Readonly<Record<string, Feature>> }
  }
  const entries = Object.entries(features?.feature ?? {})
  if (entries.length === 0) throw new Error('it has no features')
  if (entries.length > MAX_FEATURES) throw new Error(`it has ${entries.length} features, the limit is ${MAX_FEATURES}`)
  return new Map(entries.map(([name, feature]) => [name, cellOf(feature)]))
}

function cellOf({ bytesList, floatList, int64List }: Feature): TableCell {
  const values: readonly unknown[] =
    floatList?.value ??
    int64List?.value.map((value) => (typeof value === 'number' ? value : value.toNumber())) ??
    bytesList?.value.map(textOf) ??
    []
  return values.length === 1 ? values[0] : values
}

function textOf(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes)
}
