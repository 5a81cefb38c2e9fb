// The bytes that the relay carries in an hour, for each member and each address. It serves pairs that cannot reach each
// other, and is no free proxy.
import type { MemberId } from '@starling-grid/protocol'

export interface RelayQuota {
  /** bytes that one member sends in an hour */
  readonly perMember: number
  /** bytes that all members of one address send in an hour */
  readonly perAddress: number
}

/** GB that one member sends in an hour: one that sends 10 MB/s all the time stays below */
export const RELAY_GIGABYTES = 40
const GIGABYTE = 1e9
/** A lab behind one router has so many members that use up theirs. */
const MEMBERS_OF_AN_ADDRESS = 4

/** `gigabytes`: of one member in an hour */
export function relayQuota(gigabytes = RELAY_GIGABYTES): RelayQuota {
  const perMember = GIGABYTE * gigabytes
  return { perMember, perAddress: MEMBERS_OF_AN_ADDRESS * perMember }
}
const HOUR_MS = 3_600_000

export interface Sender {
  readonly self: MemberId
  readonly address: string
}

/** Counts by the hour: all counts begin anew together, so that nothing is kept of those who went. */
export class RelayAccount {
  readonly #quota: RelayQuota
  readonly #now: () => number
  #bytes = new Map<string, number>()
  #since: number

  constructor(quota: RelayQuota, now: () => number) {
    this.#quota = quota
    this.#now = now
    this.#since = now()
  }

  /** False: these bytes are beyond the hour's, and count for nothing. */
  take({ self, address }: Sender, bytes: number): boolean {
    this.#renew()
    const [ofMember, ofAddress] = [this.#of(self) + bytes, this.#of(address) + bytes]
    if (ofMember > this.#quota.perMember || ofAddress > this.#quota.perAddress) return false
    this.#bytes.set(self, ofMember)
    this.#bytes.set(address, ofAddress)
    return true
  }

  #of(name: string): number {
    return this.#bytes.get(name) ?? 0
  }

  #renew(): void {
    if (this.#now() - this.#since < HOUR_MS) return
    this.#since = this.#now()
    this.#bytes = new Map()
  }
}
