// Which signalling messages reach WebRTC and the door, whatever the coordinator passes on: those of members that this
// volunteer expects or dials. Until an offer is let through no connection exists, so no candidate is gathered or sent.
// Pure.
import { type MemberDoor, isDoor, type MemberId } from '@starling-grid/protocol'
import { MAX_CANDIDATES } from './candidate-gate.ts'

/** A message of the PeerJS protocol between members: the coordinator passes it on. */
export interface PeerJsSignal {
  readonly type: 'OFFER' | 'ANSWER' | 'CANDIDATE' | 'LEAVE' | 'EXPIRE'
  readonly src: MemberId
  readonly payload?: { readonly connectionId: string; readonly label?: string }
}

/** What members say of their doors (doors.ts). KNOCK: here is mine, where is yours? DOOR answers; without one: none. */
export type DoorSignal =
  | { readonly type: 'KNOCK'; readonly src: MemberId; readonly payload: MemberDoor }
  | { readonly type: 'DOOR'; readonly src: MemberId; readonly payload?: MemberDoor }

export type Signalled = PeerJsSignal | DoorSignal

const CARRY_PAYLOAD: ReadonlySet<unknown> = new Set<PeerJsSignal['type']>(['OFFER', 'ANSWER', 'CANDIDATE'])
const OF_PEERJS: ReadonlySet<unknown> = new Set<PeerJsSignal['type']>([
  'OFFER',
  'ANSWER',
  'CANDIDATE',
  'LEAVE',
  'EXPIRE',
])
/** They ask for a link: members that are dialled answer, and do not ask. */
const ASKING: ReadonlySet<Signalled['type']> = new Set(['OFFER', 'KNOCK'])

/** Undefined: no message of the protocol, or one that opens something else than a data connection of ours. */
export function readSignalled(value: unknown): Signalled | undefined {
  const { type, src, payload } = fieldsOf(value)
  if (typeof src !== 'string') return undefined
  if (type === 'KNOCK' || type === 'DOOR') {
    const fits = isDoor(payload) || (type === 'DOOR' && payload === undefined)
    return fits ? (value as DoorSignal) : undefined
  }
  if (!OF_PEERJS.has(type)) return undefined
  const { connectionId, type: kind, serialization, label } = fieldsOf(payload)
  if (CARRY_PAYLOAD.has(type) && (typeof connectionId !== 'string' || kind !== 'data')) return undefined
  if (type === 'OFFER' && (serialization !== 'raw' || typeof label !== 'string')) return undefined
  return value as PeerJsSignal
}

export function isDoorSignal(message: Signalled): message is DoorSignal {
  return message.type === 'KNOCK' || message.type === 'DOOR'
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {}
}

/** ms that an offer of a member waits for the order that names the member: both come over sockets of their own */
const HELD_MS = 4000
/** Members whose messages wait: those of one generation, of which each dials its neighbours. */
const MAX_HELD = 16
/** Messages of one member that wait: two offers with all their candidates, and a knock before each. */
const MAX_WAITING = 2 * (2 + MAX_CANDIDATES)

interface HeldSignals {
  readonly until: number
  readonly messages: Signalled[]
}

export class SignalGate {
  #expected: ReadonlySet<MemberId> = new Set()
  /** dials under way */
  readonly #dialled = new Map<MemberId, number>()
  readonly #held = new Map<MemberId, HeldSignals>()

  /** Members of the present generation, and newcomers that the coordinator announced. Returns what waited for them. */
  expect(members: Iterable<MemberId>, now: number): Signalled[] {
    this.#expected = new Set(members)
    this.#forgetOld(now)
    const waiting = [...this.#held].filter(([member]) => this.#expected.has(member))
    for (const [member] of waiting) this.#held.delete(member)
    return waiting.flatMap(([, { messages }]) => messages)
  }

  dials(member: MemberId): void {
    this.#dialled.set(member, (this.#dialled.get(member) ?? 0) + 1)
  }

  dialled(member: MemberId): void {
    const left = (this.#dialled.get(member) ?? 1) - 1
    if (left > 0) this.#dialled.set(member, left)
    else this.#dialled.delete(member)
  }

  /** True: it goes on. An offer or knock of another member, and candidates, wait for a moment. */
  takes(message: Signalled, now: number): boolean {
    const { src, type } = message
    if (this.#expected.has(src)) return true
    if (this.#dialled.has(src) && !ASKING.has(type)) return true
    this.#hold(src, message, now)
    return false
  }

  #hold(src: MemberId, message: Signalled, now: number): void {
    this.#forgetOld(now)
    const held = this.#held.get(src)
    if (held !== undefined && held.messages.length < MAX_WAITING) held.messages.push(message)
    else if (held === undefined && ASKING.has(message.type) && this.#held.size < MAX_HELD)
      this.#held.set(src, { until: now + HELD_MS, messages: [message] })
  }

  #forgetOld(now: number): void {
    for (const [member, { until }] of this.#held) if (until <= now) this.#held.delete(member)
  }
}
