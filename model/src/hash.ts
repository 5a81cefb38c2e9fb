// The identity of a model: what coordinator and volunteer compare before they work together.

import { sha256 } from '@noble/hashes/sha2.js'
import { bytesToHex } from '@noble/hashes/utils.js'
import type { ModelSpec } from './spec.ts'

/** Of specs that are in use: each state of a version that is written or read names its model. */
const known = new WeakMap<ModelSpec, string>()

/** Hex SHA-256 of the spec as JSON with sorted keys and no spaces. */
export function modelHash(spec: ModelSpec): string {
  const hash = known.get(spec) ?? bytesToHex(sha256(new TextEncoder().encode(canonicalJson(spec))))
  known.set(spec, hash)
  return hash
}

function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const fields = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${fields.map(([key, field]) => `${JSON.stringify(key)}:${canonicalJson(field)}`).join(',')}}`
}
