// Which operation a frame belongs to, and the frames that speak about an operation instead of carrying its numbers.
// Pure.
//
//   partial, reduced   numbers of an operation of the whole group    generation = group, step = sequence
//   chunk              numbers of a message between two ranks        the same
//   heartbeat          "I have begun this operation"                 bucket = kind of line, from the sender's side
//   refusal            "this operation has failed"                   hop = the rank to blame, payload = code and reason
import { type Frame, GridError, isErrorCode } from '@starling-grid/protocol'
import { RankFailure } from '../reduce/rank-failure.ts'
import type { Line } from './pace.ts'

/** The operations of a whole group, messages to one rank, messages from one rank. */
const LINE_KINDS = ['group', 'to', 'from'] as const
type LineKind = (typeof LINE_KINDS)[number]
/** characters of a reason that travel */
const MAX_REASON = 300
const NOTHING = new Uint8Array(0)

/** A place in a line of operations that all who take part number in the same way. */
export interface Ticket {
  readonly group: number
  readonly kind: LineKind
  /** rank in the mesh at the other end; −1 for a whole group */
  readonly peer: number
  readonly sequence: number
}

export function lineOf({ group, kind, peer }: Omit<Ticket, 'sequence'>): Line {
  return `${group} ${kind} ${peer}`
}

export function keyOf(ticket: Ticket): string {
  return `${lineOf(ticket)} ${ticket.sequence}`
}

/**
 * The operation, seen from here, that a frame from rank `from` of the mesh belongs to.
 * @throws GridError 'message-unexpected' or 'message-malformed'
 */
export function ticketOf(from: number, { type, generation: group, step: sequence, bucket }: Frame): Ticket {
  if (type === 'partial' || type === 'reduced') return { group, kind: 'group', peer: -1, sequence }
  if (type === 'chunk') return { group, kind: 'from', peer: from, sequence }
  if (type !== 'heartbeat' && type !== 'refusal')
    throw new GridError('message-unexpected', `expected a frame of an operation between ranks, got ${type}`)
  const kind = LINE_KINDS[bucket]
  if (kind === undefined)
    throw new GridError('message-malformed', `expected a known kind of operation in a ${type} frame, got ${bucket}`)
  if (kind === 'group') return { group, kind, peer: -1, sequence }
  return { group, kind: kind === 'to' ? 'from' : 'to', peer: from, sequence }
}

/** A frame about an operation. */
export function wordFrame(
  { group, kind, sequence }: Ticket,
  type: 'heartbeat' | 'refusal',
  { hop = 0, payload = NOTHING }: { readonly hop?: number; readonly payload?: Uint8Array } = {},
): Frame {
  return { type, generation: group, step: sequence, bucket: LINE_KINDS.indexOf(kind), hop, offset: 0, payload }
}

/** A code, a space, a reason for people. */
export function refusalText({ code, what }: RankFailure): Uint8Array {
  return new TextEncoder().encode(`${code} ${what.slice(0, MAX_REASON)}`)
}

/**
 * What rank `from` said when it ended an operation. Its text is a stranger's: shortened, without control characters.
 */
export function refusalOf({ hop, payload }: Frame, from: number, size: number): RankFailure {
  if (hop >= size) return new RankFailure(from, 'message-malformed', `blames rank ${hop} in a group of ${size}`)
  const text = new TextDecoder().decode(payload.subarray(0, 4 * MAX_REASON))
  const [code = '', ...reason] = text.replace(/\p{C}/gu, ' ').split(' ')
  const said = hop === from ? '' : ` (says rank ${from})`
  return new RankFailure(
    hop,
    isErrorCode(code) ? code : 'message-unexpected',
    `${reason.join(' ').slice(0, MAX_REASON)}${said}`,
  )
}
