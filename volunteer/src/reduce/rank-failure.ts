// Why a collective operation ended: always with the rank that failed, so that a program can go on without it.
import { type ErrorCode, GridError } from '@starling-grid/protocol'

/**
 * @example catch (error) { if (error instanceof RankFailure) survivors = survivors.filter((rank) => rank !==
 * error.rank) }
 */
export class RankFailure extends GridError {
  /** in the group that ran the operation */
  readonly rank: number
  /** what it did, to stand after "rank 3": "sent …", "was lost: …" */
  readonly what: string

  constructor(rank: number, code: ErrorCode, what: string, operation?: string) {
    super(code, `${operation === undefined ? '' : `${operation}: `}rank ${rank} ${what}`)
    this.name = 'RankFailure'
    this.rank = rank
    this.what = what
  }

  /** The same, saying in which operation. */
  in(operation: string): RankFailure {
    return new RankFailure(this.rank, this.code, this.what, operation)
  }
}
