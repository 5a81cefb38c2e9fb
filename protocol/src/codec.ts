// Text of a WebSocket ⇄ typed message. The one gate for JSON from the network: what passes is bounded and matches its schema.
import type { TSchema } from 'typebox'
import { GridError } from './errors.ts'
import { MAX_MESSAGE_BYTES } from './limits.ts'
import { type OnWire, TO_COORDINATOR, TO_VOLUNTEER, type ToCoordinator, type ToVolunteer } from './messages.ts'
import { parse, parseJson } from './schema.ts'

/** @throws GridError 'message-too-large' or 'message-malformed' */
export function decodeToCoordinator(text: string): OnWire<ToCoordinator> {
  return decode(TO_COORDINATOR, text) as OnWire<ToCoordinator>
}
/** @throws GridError 'message-too-large' or 'message-malformed' */
export function decodeToVolunteer(text: string): OnWire<ToVolunteer> {
  return decode(TO_VOLUNTEER, text) as OnWire<ToVolunteer>
}

export function encode(message: OnWire<ToCoordinator> | OnWire<ToVolunteer>): string {
  return JSON.stringify(message)
}

function decode(schemas: Readonly<Record<string, TSchema>>, text: string): unknown {
  const value = parseJson(text, MAX_MESSAGE_BYTES, 'a message')
  const type = typeof value === 'object' && value !== null && 'type' in value ? value.type : undefined
  const schema = typeof type === 'string' && Object.hasOwn(schemas, type) ? schemas[type] : undefined
  if (schema === undefined) throw new GridError('message-malformed', `a message has a known type, got ${JSON.stringify(type)?.slice(0, 40)}`)
  return parse(schema, value, `message ${String(type)}`)
}
