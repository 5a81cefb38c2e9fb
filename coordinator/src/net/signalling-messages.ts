// What PeerJS clients say to each other through us, rebuilt from what is allowed: data connections, one section of SDP,
// candidates with plausible ports. Field names are those of the PeerJS protocol. Two messages are ours: KNOCK tells a
// member our door and asks for its own, DOOR answers. Independent of sockets.
import {
  DoorSchema,
  GridError,
  MAX_DOOR_ADDRESSES,
  MemberIdSchema,
  parse,
  parseJson,
  type MemberId,
} from '@starling-grid/protocol'
import * as Type from 'typebox'
import type { Static } from 'typebox'
import { isLocal, withoutMapping } from './network.ts'

/** Bytes of session description in an offer or answer; ours have about 500, browsers' with candidates about 2000. */
const MAX_SDP_BYTES = 16 * 1024
/** Bytes of one signalling message: a session description in JSON and what is around it. */
export const MAX_SIGNAL_BYTES = MAX_SDP_BYTES + 4 * 1024
/** Below are the ports of services that strangers should not be made to knock at. */
const LOWEST_PORT = 1024
/** Stands for "no port" in candidates of active TCP (RFC 6544). */
const DISCARD_PORT = 9

/**
 * Candidates of one end of a connection, in its session description and after it: all interfaces of a machine, not a
 * list of targets.
 */
export const MAX_CANDIDATES = 20

const ConnectionId = Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' })
const description = <T extends 'offer' | 'answer'>(type: T) =>
  Type.Object({ type: Type.Literal(type), sdp: Type.String({ maxLength: MAX_SDP_BYTES }) })

const OfferSchema = Type.Object({
  type: Type.Literal('OFFER'),
  dst: MemberIdSchema,
  payload: Type.Object({
    type: Type.Literal('data'),
    connectionId: ConnectionId,
    label: ConnectionId,
    reliable: Type.Literal(true),
    serialization: Type.Literal('raw'),
    sdp: description('offer'),
  }),
})
const AnswerSchema = Type.Object({
  type: Type.Literal('ANSWER'),
  dst: MemberIdSchema,
  payload: Type.Object({ type: Type.Literal('data'), connectionId: ConnectionId, sdp: description('answer') }),
})
const CandidateSchema = Type.Object({
  type: Type.Literal('CANDIDATE'),
  dst: MemberIdSchema,
  payload: Type.Object({
    type: Type.Literal('data'),
    connectionId: ConnectionId,
    candidate: Type.Object({
      candidate: Type.String({ maxLength: 512 }),
      sdpMid: Type.Optional(Type.Union([Type.String({ maxLength: 16 }), Type.Null()])),
      sdpMLineIndex: Type.Optional(Type.Union([Type.Literal(0), Type.Null()])),
    }),
  }),
})
const LeaveSchema = Type.Object({ type: Type.Literal('LEAVE'), dst: MemberIdSchema })
const KnockSchema = Type.Object({ type: Type.Literal('KNOCK'), dst: MemberIdSchema, payload: DoorSchema })
/** without a payload: this member has none */
const AnsweredDoorSchema = Type.Object({
  type: Type.Literal('DOOR'),
  dst: MemberIdSchema,
  payload: Type.Optional(DoorSchema),
})
const HeartbeatSchema = Type.Object({ type: Type.Literal('HEARTBEAT') })
const SignalSchema = Type.Union([
  OfferSchema,
  AnswerSchema,
  CandidateSchema,
  LeaveSchema,
  KnockSchema,
  AnsweredDoorSchema,
  HeartbeatSchema,
])

/** A message from a PeerJS client, holding allowed fields only. */
export type Signal = Static<typeof SignalSchema>

/** A message to a PeerJS client. */
export type SignalOut =
  | { readonly type: 'OPEN' }
  | {
      readonly type: 'OFFER' | 'ANSWER' | 'CANDIDATE' | 'LEAVE' | 'KNOCK' | 'DOOR'
      readonly src: MemberId
      readonly payload?: unknown
    }
  /** the member `src`, which got an offer of this client, cannot be reached */
  | { readonly type: 'EXPIRE'; readonly src: MemberId }

/** @throws GridError 'message-malformed' or 'message-too-large' */
export function readSignal(text: string): Signal {
  const value = parseJson(text, MAX_SIGNAL_BYTES, 'a signalling message')
  const schemas = {
    OFFER: OfferSchema,
    ANSWER: AnswerSchema,
    CANDIDATE: CandidateSchema,
    LEAVE: LeaveSchema,
    KNOCK: KnockSchema,
    DOOR: AnsweredDoorSchema,
    HEARTBEAT: HeartbeatSchema,
  }
  const type = typeof value === 'object' && value !== null && 'type' in value ? String(value.type) : ''
  const schema = Object.hasOwn(schemas, type) ? schemas[type as keyof typeof schemas] : SignalSchema
  return rebuild(parse<typeof SignalSchema>(schema as typeof SignalSchema, value, 'signalling message'))
}

/** The same message without anything that the schemas do not name. */
function rebuild(signal: Signal): Signal {
  switch (signal.type) {
    case 'HEARTBEAT':
      return { type: signal.type }
    case 'LEAVE':
      return { type: signal.type, dst: signal.dst }
    case 'KNOCK':
      return { type: signal.type, dst: signal.dst, payload: signal.payload }
    case 'DOOR':
      return signal.payload === undefined
        ? { type: signal.type, dst: signal.dst }
        : { type: signal.type, dst: signal.dst, payload: signal.payload }
    case 'CANDIDATE': {
      const {
        type,
        connectionId,
        candidate: { candidate, sdpMid = null, sdpMLineIndex = null },
      } = signal.payload
      requirePlausibleCandidate(candidate)
      return {
        type: signal.type,
        dst: signal.dst,
        payload: { type, connectionId, candidate: { candidate, sdpMid, sdpMLineIndex } },
      }
    }
    case 'ANSWER': {
      const { type, connectionId, sdp } = signal.payload
      return {
        type: signal.type,
        dst: signal.dst,
        payload: { type, connectionId, sdp: { type: sdp.type, sdp: checkedSdp(sdp.sdp) } },
      }
    }
    case 'OFFER': {
      const { type, connectionId, label, reliable, serialization, sdp } = signal.payload
      const payload = {
        type,
        connectionId,
        label,
        reliable,
        serialization,
        sdp: { type: sdp.type, sdp: checkedSdp(sdp.sdp) },
      }
      return { type: signal.type, dst: signal.dst, payload }
    }
    default:
      return signal satisfies never
  }
}

/** One section of type application, printable lines, plausible candidates: data and nothing else. */
function checkedSdp(sdp: string): string {
  const lines = sdp.split(/\r?\n/)
  if (lines.at(-1) === '') lines.pop()
  for (const line of lines)
    if (!/^[a-z]=[\x20-\x7e]*$/.test(line)) throw malformed('a session description has lines like "v=0"')
  const media = lines.filter((line) => line.startsWith('m='))
  if (media.length !== 1 || media[0]?.startsWith('m=application ') !== true)
    throw malformed('a session description has one section, of type application')
  const candidates = lines.filter((line) => line.startsWith('a=candidate:'))
  if (candidates.length > MAX_CANDIDATES)
    throw malformed(`a session description has at most ${MAX_CANDIDATES} candidates`)
  for (const line of candidates) requirePlausibleCandidate(line.slice('a='.length))
  return sdp
}

/** RFC 8839: candidate:foundation component transport priority address port typ type … */
const CANDIDATE = new RegExp(
  String.raw`^candidate:[\w+/-]{1,32} [0-9]{1,3} (udp|tcp) [0-9]{1,10} [0-9A-Za-z.:-]{1,255} ([0-9]{1,5}) ` +
    String.raw`typ (host|srflx|prflx|relay)( [\x20-\x7e]*)?$`,
  'i',
)

function requirePlausibleCandidate(candidate: string): void {
  const match = CANDIDATE.exec(candidate)
  const port = Number(match?.[2])
  const noPort = port === DISCARD_PORT && match?.[1]?.toLowerCase() === 'tcp'
  if (noPort || (port >= LOWEST_PORT && port <= 0xffff)) return
  throw malformed(`a candidate has a transport, an address, a port from ${LOWEST_PORT} and a type`)
}

/** Candidates that a message carries. */
export function candidatesIn(signal: Signal): number {
  if (signal.type === 'CANDIDATE') return 1
  if (signal.type !== 'OFFER' && signal.type !== 'ANSWER') return 0
  return signal.payload.sdp.sdp.split(/\r?\n/).filter((line) => line.startsWith('a=candidate:')).length
}

/**
 * The same message for a volunteer of another network. Local addresses would tell it about this network and lead
 * nowhere. Undefined: nothing is left.
 */
export function withoutLocalAddresses(signal: Signal): Signal | undefined {
  if (signal.type === 'CANDIDATE') {
    const { candidate } = signal.payload.candidate
    return isLocal(addressOf(candidate))
      ? undefined
      : {
          ...signal,
          payload: { ...signal.payload, candidate: { ...signal.payload.candidate, candidate: withoutBase(candidate) } },
        }
  }
  if (signal.type === 'OFFER')
    return {
      ...signal,
      payload: { ...signal.payload, sdp: { ...signal.payload.sdp, sdp: sdpWithoutLocal(signal.payload.sdp.sdp) } },
    }
  if (signal.type === 'ANSWER')
    return {
      ...signal,
      payload: { ...signal.payload, sdp: { ...signal.payload.sdp, sdp: sdpWithoutLocal(signal.payload.sdp.sdp) } },
    }
  return signal.type === 'KNOCK' || signal.type === 'DOOR' ? withAddresses(signal, isGlobal) : signal
}

/**
 * The same message with the address that its socket comes from: behind a router whose ports lead to it, a machine does
 * not know its own.
 */
export function withSeenAddress(signal: Signal, address: string): Signal {
  if ((signal.type !== 'KNOCK' && signal.type !== 'DOOR') || signal.payload === undefined || isLocal(address))
    return signal
  const addresses = [...new Set([...signal.payload.addresses, withoutMapping(address)])].slice(0, MAX_DOOR_ADDRESSES)
  return { ...signal, payload: { ...signal.payload, addresses } }
}

function withAddresses(
  signal: Extract<Signal, { type: 'KNOCK' | 'DOOR' }>,
  takes: (address: string) => boolean,
): Signal {
  const { payload } = signal
  return payload === undefined
    ? signal
    : { ...signal, payload: { ...payload, addresses: payload.addresses.filter(takes) } }
}

function isGlobal(address: string): boolean {
  return !isLocal(address)
}

function sdpWithoutLocal(sdp: string): string {
  const lines = sdp.split(/\r?\n/)
  const kept = lines.filter((line) => !line.startsWith('a=candidate:') || !isLocal(addressOf(line)))
  return kept.map((line) => (line.startsWith('a=candidate:') ? withoutBase(line) : line)).join('\r\n')
}

/** candidate:foundation component transport priority ADDRESS port … */
function addressOf(candidate: string): string {
  return candidate.split(' ')[4] ?? ''
}

/** The address behind the router, which a reflexive candidate names for debugging. */
function withoutBase(candidate: string): string {
  return candidate.replace(/ raddr [0-9A-Za-z.:-]+ rport [0-9]+/i, ' raddr 0.0.0.0 rport 9')
}

function malformed(message: string): GridError {
  return new GridError('message-malformed', message)
}
