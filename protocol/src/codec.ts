// Text of a WebSocket ⇄ typed message. The one gate for JSON from the network: what passes is bounded and matches its
// schema.
import type { TSchema } from 'typebox'
import { GridError } from './errors.ts'
import { MAX_MESSAGE_BYTES, MAX_PLAIN_MESSAGE_BYTES, MAX_PLAIN_MESSAGE_VALUES, PROTOCOL_VERSION } from './limits.ts'
import { type OnWire, TO_COORDINATOR, TO_VOLUNTEER, type ToCoordinator, type ToVolunteer } from './messages.ts'
import { conforms, measureJson, parse, parseJson } from './schema.ts'

/** @throws GridError 'message-too-large', 'message-malformed' or, of another version's hello, 'protocol-version' */
export function decodeToCoordinator(text: string): OnWire<ToCoordinator> {
  if (isLarge(text)) return decodeClaim(text)
  const value = parseJson(text, MAX_MESSAGE_BYTES, 'a message')
  requireOwnVersion(value)
  return decode(TO_COORDINATOR, value) as OnWire<ToCoordinator>
}

/** One pass over the characters, before anything is made of them. */
function isLarge(text: string): boolean {
  return text.length > MAX_PLAIN_MESSAGE_BYTES || measureJson(text).values > MAX_PLAIN_MESSAGE_VALUES
}

/** Only a claim may be so large, and its type is its first field, as `encode` writes it. */
function decodeClaim(text: string): OnWire<ToCoordinator> {
  if (!text.startsWith('{"type":"state",'))
    throw new GridError(
      'message-too-large',
      `expected a message of at most ${MAX_PLAIN_MESSAGE_BYTES} bytes and ${MAX_PLAIN_MESSAGE_VALUES} values, ` +
        `got ${text.length} bytes of ${JSON.stringify(text.slice(0, 40))}`,
    )
  // Ids and numbers need none, and texts with escapes are looked through key by key.
  if (text.includes('\\')) throw new GridError('message-malformed', 'message state: expected no escapes, got some')
  const value = parseJson(text, MAX_MESSAGE_BYTES, 'a message')
  // What is wrong where would take a look at every value.
  if (!conforms(TO_COORDINATOR['state'] ?? {}, value))
    throw new GridError('message-malformed', 'message state: expected the fields of its schema, got others')
  return value as OnWire<ToCoordinator>
}

/** @throws GridError 'message-too-large' or 'message-malformed' */
export function decodeToVolunteer(text: string): OnWire<ToVolunteer> {
  return decode(TO_VOLUNTEER, parseJson(text, MAX_MESSAGE_BYTES, 'a message')) as OnWire<ToVolunteer>
}

export function encode(message: OnWire<ToCoordinator> | OnWire<ToVolunteer>): string {
  return JSON.stringify(message)
}

function decode(schemas: Readonly<Record<string, TSchema>>, value: unknown): unknown {
  const type = typeof value === 'object' && value !== null && 'type' in value ? value.type : undefined
  const schema = typeof type === 'string' && Object.hasOwn(schemas, type) ? schemas[type] : undefined
  if (schema === undefined)
    throw new GridError(
      'message-malformed',
      `expected a message of a known type, got ${JSON.stringify(type)?.slice(0, 40)}`,
    )
  return parse(schema, value, `message ${String(type)}`)
}

/** Before the schema: a hello of another version has other fields, and its sender is told what to do about it. */
function requireOwnVersion(value: unknown): void {
  if (
    typeof value !== 'object' ||
    value === null ||
    !('type' in value) ||
    value.type !== 'hello' ||
    !('protocol' in value)
  )
    return
  const { protocol } = value
  if (typeof protocol !== 'number' || protocol === PROTOCOL_VERSION) return
  const client = 'client' in value ? value.client : undefined
  throw new GridError(
    'protocol-version',
    `expected protocol ${PROTOCOL_VERSION}, got ${protocol}; ${cureFor(protocol, client)}`,
  )
}

function cureFor(protocol: number, client: unknown): string {
  if (protocol > PROTOCOL_VERSION) return 'update the coordinator'
  return client === 'tab' ? 'reload the page' : 'update the volunteer'
}
