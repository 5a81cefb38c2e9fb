// The manifest of an imported model: the shards of its frozen parameters. It is a blob like the shards, so its hash
// stands for all of the model's bytes.
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { GridError } from './errors.ts'
import { MAX_SHARD_BYTES } from './limits.ts'
import { parse, Sha256Schema, strict } from './schema.ts'

export const BASE_FORMAT = 'starling-base'
/** Members from which a newcomer fetches shards: more would take upload from the ring. */
export const MAX_BASE_SOURCES = 3
const MAX_ROWS = 2 ** 24
const MAX_BASE_SHARDS = 20_000
const MAX_PARTS = 100_000
const MAX_TENSOR_NAME = 200

const BasePartSchema = strict({
  name: Type.String({ minLength: 1, maxLength: MAX_TENSOR_NAME }),
  /** first row that the shard has of it; of a vector, whose only row is whole, 0 */
  row: Type.Integer({ minimum: 0, maximum: MAX_ROWS }),
  rows: Type.Integer({ minimum: 1, maximum: MAX_ROWS }),
})

const BaseManifestSchema = strict({
  format: Type.Literal(BASE_FORMAT),
  shards: Type.Array(
    strict({
      sha256: Sha256Schema,
      bytes: Type.Integer({ minimum: 1, maximum: MAX_SHARD_BYTES }),
      parts: Type.Array(BasePartSchema, { minItems: 1, maxItems: MAX_PARTS }),
    }),
    { minItems: 1, maxItems: MAX_BASE_SHARDS },
  ),
})
/** Safetensors files whose tensors `NAME@ROW` are rows of a parameter, in our order (model/src/base-store.ts). */
export type BaseManifest = Static<typeof BaseManifestSchema>
export type BaseShard = BaseManifest['shards'][number]

/** @throws GridError 'shard-corrupt' */
export function readBaseManifest(bytes: Uint8Array): BaseManifest {
  return parse(BaseManifestSchema, jsonOf(bytes), 'the manifest of a base model', 'shard-corrupt')
}

function jsonOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch (cause) {
    throw new GridError('shard-corrupt', 'expected JSON as the manifest of a base model, got other bytes', { cause })
  }
}
