// Groups of ranks that `starling launch` starts on several machines, and that meet here. The owner opens a group of N
// ranks and gets its secret. Launchers that have the secret add their ranks. When N are there, each gets the list of
// all. Ranks are introduced by a signalling of their own: ranks of a group exchange messages with each other, and with
// no volunteer.
import { createHash, timingSafeEqual } from 'node:crypto'
import {
  GridError,
  GroupRanksSchema,
  GroupSizeSchema,
  hex,
  type MemberId,
  parse,
  pathTo,
  ROUTES,
} from '@starling-grid/protocol'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { CoordinatorClock } from '../clock.ts'
import { type IceOptions, iceServersFor } from './ice-servers.ts'
import { registerSignalling, type SignallingOptions } from './signalling.ts'

/** Groups at a time: the oldest makes room. */
const MAX_GROUPS = 64
/** ms that a group waits for its ranks */
const FILL_MS = 10 * 60_000
/** ms that its ranks may open links: the longest programs open theirs in the first minutes */
const OPEN_MS = 24 * 60 * 60_000
/** Requests of one address: a launcher asks once a second until all ranks are there. */
const REQUESTS_PER_MINUTE = 300

export interface Group {
  readonly id: string
  readonly size: number
  readonly secretHash: Buffer
  /** by rank */
  readonly members: MemberId[]
  readonly openedAt: number
}

/** Which groups there are. Time comes from the caller. */
export class GroupBook {
  readonly #groups = new Map<string, Group>()
  readonly #onGone: (member: MemberId) => void

  /** `onGone`: told of each rank of a group that is forgotten. */
  constructor(onGone: (member: MemberId) => void = () => undefined) {
    this.#onGone = onGone
  }

  /** A group of `size` ranks, none of them there yet. */
  open(size: number, now: number): { readonly group: Group; readonly secret: string } {
    this.#tidy(now)
    const [oldest] = this.#groups.values()
    if (oldest !== undefined && this.#groups.size >= MAX_GROUPS) this.#forget(oldest)
    const secret = randomHex(32)
    const group: Group = { id: randomHex(16), size, secretHash: hashOf(secret), members: [], openedAt: now }
    this.#groups.set(group.id, group)
    return { group, secret }
  }

  /** @throws GridError 'session-unknown' without the secret of a group that is open */
  find(id: string, secret: string, now: number): Group {
    this.#tidy(now)
    const group = this.#groups.get(id)
    if (group === undefined || !timingSafeEqual(group.secretHash, hashOf(secret)))
      throw new GridError(
        'session-unknown',
        'expected the secret of a group that is open, got none or an old one; launch a new group',
      )
    return group
  }

  /**
   * The group with these ranks behind those that are there. The same ranks again change nothing, so that a launcher may
   * ask until all are there.
   * @throws GridError as `find`, and 'usage' when more come than have room
   */
  join(id: string, secret: string, brought: readonly MemberId[], now: number): Group {
    const group = this.find(id, secret, now)
    const added = brought.filter((member) => !group.members.includes(member))
    const room = group.size - group.members.length
    if (new Set(brought).size !== brought.length || added.length > room)
      throw new GridError(
        'usage',
        `expected at most ${room} more ranks of ${group.size}, got ${added.length}; start fewer`,
      )
    if (added.some((member) => this.#groupOf(member) !== undefined))
      throw new GridError('usage', 'expected ranks of no other group, got one that has its own; start them again')
    group.members.push(...added)
    return group
  }

  /** May this socket speak for this rank? */
  speaksFor(member: MemberId, secret: string): boolean {
    const group = this.#groupOf(member)
    return group !== undefined && timingSafeEqual(group.secretHash, hashOf(secret))
  }

  /** Ranks of one group. */
  mayTalk(a: MemberId, b: MemberId): boolean {
    return this.#groupOf(a)?.members.includes(b) ?? false
  }

  #groupOf(member: MemberId): Group | undefined {
    return [...this.#groups.values()].find(({ members }) => members.includes(member))
  }

  #tidy(now: number): void {
    for (const group of this.#groups.values()) {
      const limit = group.members.length < group.size ? FILL_MS : OPEN_MS
      if (now - group.openedAt > limit) this.#forget(group)
    }
  }

  #forget(group: Group): void {
    this.#groups.delete(group.id)
    for (const member of group.members) this.#onGone(member)
  }
}

export interface GroupParts extends Pick<SignallingOptions, 'shareNetwork' | 'onRefusal'> {
  readonly clock: CoordinatorClock
  readonly ice: IceOptions
  /** @throws GridError 'token-required' */
  requireOwner(request: FastifyRequest): unknown
}

export function registerGroups(app: FastifyInstance, { clock, ice, requireOwner, ...parts }: GroupParts): void {
  const book = new GroupBook((member) => signalling.drop(member))
  const signalling = registerSignalling(app, {
    ...parts,
    clock,
    path: ROUTES.groupSignalling,
    authenticate: (member, secret) => book.speaksFor(member, secret),
    mayTalk: (a, b) => book.mayTalk(a, b),
  })
  const config = { rateLimit: { max: REQUESTS_PER_MINUTE, timeWindow: 60_000 } }
  app.post(
    ROUTES.groups,
    { config, onRequest: async (request) => void requireOwner(request) },
    async ({ body }, reply) => {
      const { size } = parse(GroupSizeSchema, body, 'a group')
      const { group, secret } = book.open(size, clock.awake())
      return reply
        .code(201)
        .header('location', pathTo(ROUTES.groupRanks, { id: group.id }))
        .send({ id: group.id, secret })
    },
  )
  const secretOf = ({ headers }: FastifyRequest): string => (headers.authorization ?? '').replace(/^Bearer /, '')
  app.put<{ Params: { id: string } }>(ROUTES.groupRanks, {
    config,
    onRequest: async (request) => void book.find(request.params.id, secretOf(request), clock.awake()),
    handler: async (request) => {
      const { members: brought } = parse(GroupRanksSchema, request.body, 'the ranks')
      const { members, size } = book.join(request.params.id, secretOf(request), brought as MemberId[], clock.awake())
      const missing = size - members.length
      if (missing > 0) return { missing }
      return {
        missing,
        members,
        iceServers: brought.map((member) => iceServersFor(member as MemberId, ice, clock.awake())),
      }
    },
  })
}

function hashOf(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

function randomHex(bytes: number): string {
  return hex(crypto.getRandomValues(new Uint8Array(bytes)))
}
