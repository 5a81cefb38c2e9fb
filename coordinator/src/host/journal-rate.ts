// How many journal rows one member's messages may cause. Rows of the run's work are bounded by its blocks and do not
// count. Of all others a member may cause a burst, and few in the long run.
import type { Clock, MemberId } from '@starling-grid/protocol'
import type { Effect, JournalEntry, RunInput } from '../run/state.ts'
import { TokenBucket } from '../token-bucket.ts'

/** Rows at once: a ring member that finds a whole shard unreadable names up to 1024 blocks. */
export const ROWS_AT_ONCE = 2048
/** Rows a minute in the long run: 37 ballots with their START and mode are 111. */
export const ROWS_PER_MINUTE = 600

/** Each of these takes blocks off the run, or counts one of its leases, and so there are only so many. */
const WORK: ReadonlySet<JournalEntry['type']> = new Set(['commit', 'start', 'validated'])

export class JournalRate {
  readonly #clock: Pick<Clock, 'now'>
  readonly #buckets = new Map<MemberId, TokenBucket>()

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock
  }

  /** Counts what this input led to; false when its member caused more rows than it may. */
  pays(input: RunInput, effects: readonly Effect[]): boolean {
    const member = causeOf(input)
    if (member === undefined) return true
    if (input.type === 'member-lost') {
      this.#buckets.delete(member)
      return true
    }
    const rows = effects.flatMap((effect) => (effect.type === 'journal' ? effect.entries : []))
    const counted = rows.filter(({ type }) => !WORK.has(type)).length
    return counted === 0 || this.#bucketOf(member).pay(counted)
  }

  #bucketOf(member: MemberId): TokenBucket {
    const bucket = this.#buckets.get(member) ?? new TokenBucket(ROWS_PER_MINUTE / 60, ROWS_AT_ONCE, this.#clock)
    this.#buckets.set(member, bucket)
    return bucket
  }
}

/** The member whose doing an input is. */
export function causeOf(input: RunInput): MemberId | undefined {
  if ('push' in input) return input.push.incarnation
  if (!('member' in input)) return undefined
  return typeof input.member === 'string' ? input.member : input.member.id
}
