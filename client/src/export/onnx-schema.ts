// The part of ONNX's schema (onnx.proto, IR version 9) that a trained model needs, as protobufjs reads it. Numbers of
// fields are those of the standard.
import protobuf from 'protobufjs/light.js'

type WireField = readonly [name: string, number: number, type: string, repeated?: 'repeated']

const MESSAGES: Readonly<Record<string, readonly WireField[]>> = {
  ModelProto: [
    ['irVersion', 1, 'int64'],
    ['producerName', 2, 'string'],
    ['graph', 7, 'GraphProto'],
    ['opsetImport', 8, 'OperatorSetIdProto', 'repeated'],
    ['metadataProps', 14, 'StringStringEntryProto', 'repeated'],
  ],
  OperatorSetIdProto: [
    ['domain', 1, 'string'],
    ['version', 2, 'int64'],
  ],
  StringStringEntryProto: [
    ['key', 1, 'string'],
    ['value', 2, 'string'],
  ],
  GraphProto: [
    ['node', 1, 'NodeProto', 'repeated'],
    ['name', 2, 'string'],
    ['initializer', 5, 'TensorProto', 'repeated'],
    ['input', 11, 'ValueInfoProto', 'repeated'],
    ['output', 12, 'ValueInfoProto', 'repeated'],
  ],
  NodeProto: [
    ['input', 1, 'string', 'repeated'],
    ['output', 2, 'string', 'repeated'],
    ['name', 3, 'string'],
    ['opType', 4, 'string'],
    ['attribute', 5, 'AttributeProto', 'repeated'],
  ],
  AttributeProto: [
    ['name', 1, 'string'],
    ['f', 2, 'float'],
    ['i', 3, 'int64'],
    ['s', 4, 'bytes'],
    ['ints', 8, 'int64', 'repeated'],
    ['type', 20, 'int32'],
  ],
  TensorProto: [
    ['dims', 1, 'int64', 'repeated'],
    ['dataType', 2, 'int32'],
    ['name', 8, 'string'],
    ['rawData', 9, 'bytes'],
  ],
  ValueInfoProto: [
    ['name', 1, 'string'],
    ['type', 2, 'TypeProto'],
  ],
  TypeProto: [['tensorType', 1, 'TensorType']],
  TensorType: [
    ['elemType', 1, 'int32'],
    ['shape', 2, 'TensorShapeProto'],
  ],
  TensorShapeProto: [['dim', 1, 'Dimension', 'repeated']],
  Dimension: [
    ['dimValue', 1, 'int64'],
    ['dimParam', 2, 'string'],
  ],
}

/** AttributeProto.AttributeType */
export const ATTRIBUTE = { float: 1, int: 2, string: 3, ints: 7 } as const
/** TensorProto.DataType */
export const TENSOR = { float: 1, int64: 7 } as const

const root = protobuf.Root.fromJSON({
  nested: Object.fromEntries(
    Object.entries(MESSAGES).map(([name, fields]) => [
      name,
      {
        fields: Object.fromEntries(
          fields.map(([field, id, type, rule]) => [field, { id, type, ...(rule === undefined ? {} : { rule }) }]),
        ),
      },
    ]),
  ),
})

/** The bytes of a ModelProto. */
export function encodeModel(model: Readonly<Record<string, unknown>>): Uint8Array {
  return root.lookupType('ModelProto').encode(model).finish()
}
