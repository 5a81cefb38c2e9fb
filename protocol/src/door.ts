// Where a Node member takes links over TCP, and by which certificate it is known there. Members tell their doors to
// those that the coordinator introduces to them, through signalling (docs/LINKS.md).
import * as Type from 'typebox'
import { conforms, type ReadonlyOf, Sha256Schema, strict } from './schema.ts'

/** Addresses of one machine: a few interfaces, not a list of targets. */
export const MAX_DOOR_ADDRESSES = 8
/** Below are the ports of services that a volunteer should not be made to knock at. */
export const LOWEST_DOOR_PORT = 1024

export const DoorSchema = strict({
  /** SHA-256 of the certificate */
  fingerprint: Sha256Schema,
  port: Type.Integer({ minimum: LOWEST_DOOR_PORT, maximum: 65_535 }),
  /** IPv4 or IPv6; never a name, which the dialling member would have to resolve */
  addresses: Type.Array(Type.String({ minLength: 2, maxLength: 45, pattern: '^[0-9A-Fa-f.:]+$' }), {
    maxItems: MAX_DOOR_ADDRESSES,
  }),
})
export type MemberDoor = ReadonlyOf<typeof DoorSchema>

export function isDoor(value: unknown): value is MemberDoor {
  return conforms(DoorSchema, value)
}
