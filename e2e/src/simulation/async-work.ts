// What a member does beside the ring: leases of async mode, computed and pushed, and validation blocks.
import type { BlockId, ErrorCode, LeaseToken, MemberId, MessageTo, Push } from '@starling-grid/protocol'
import type { MemberCore } from '@starling-grid/volunteer/member'
import type { Connection } from './connection.ts'
import type { Context } from './context.ts'

/** ms that computing takes at most: sometimes longer than a lease */
const COMPUTE_MS = 2500
/** ms until work is asked for again, at most */
const RETRY_MS = 1000
/** of the pushes: how many are sent again although the first arrived */
const REPEATED = 0.15

interface Worker {
  readonly id: MemberId
  readonly seat: number
  readonly core: MemberCore
  readonly alive: boolean
  readonly connection: Connection | undefined
}

export class AsyncWork {
  readonly #context: Context
  readonly #worker: Worker
  /** raised by every grant, and when the next is asked for */
  #turn = 0

  constructor(context: Context, worker: Worker) {
    this.#context = context
    this.#worker = worker
  }

  granted({ modeEpoch, base, leases }: MessageTo<'grant'>): void {
    const { id } = this.#worker
    const { agenda, dice } = this.#context
    if (modeEpoch !== this.#worker.core.asyncEpoch) return
    const blocks = leases.map(({ block }) => block)
    const turn = ++this.#turn
    if (this.#context.has('no-downloads', this.#worker)) return this.#askAgain(turn, modeEpoch)
    agenda.later(
      dice.between(0, COMPUTE_MS),
      () => `${id} computed [${blocks.join(' ')}]`,
      () => {
        if (!this.#worker.alive) return
        const failure = this.#context.shards.failure(id, blocks, agenda.now)
        if (failure !== undefined) return this.#giveBack(leases, failure, () => this.#askAgain(turn, modeEpoch))
        const gradient = this.#context.history.gradient(blocks)
        if (this.#context.poisoned(blocks)) gradient[0] = Number.NaN
        const samples = blocks.length
        this.#push(
          turn,
          { incarnation: id, modeEpoch, base, leases, samples, targets: samples, lossSum: samples, correct: 0 },
          gradient,
        )
      },
    )
  }

  #push(turn: number, push: Push, gradient: Float32Array): void {
    const { connection, id } = this.#worker
    if (connection === undefined) return
    if (this.#context.has('no-uploads', this.#worker)) return this.#askAgain(turn, push.modeEpoch)
    const { agenda, dice } = this.#context
    const blocks = push.leases.map(({ block, leaseEpoch }) => `${block}/${leaseEpoch}`).join(' ')
    const arrive = (): void =>
      void (connection.coordinator.pushed(push, gradient) && this.#askAgain(turn, push.modeEpoch))
    agenda.send(`${id}⇈`, () => `${id} pushes [${blocks}]`, arrive)
    if (dice.chance(REPEATED)) agenda.later(dice.between(0, COMPUTE_MS), () => `${id} pushes [${blocks}] again`, arrive)
  }

  #giveBack(leases: readonly LeaseToken[], code: ErrorCode, then: () => void): void {
    const { connection } = this.#worker
    const blocks = leases.map(({ block }) => block)
    reportUnreadable(this.#context, connection, blocks, code)
    this.#context.counts.gaveBack += leases.length
    const message = 'the blocks could not be read'
    connection?.toCoordinator({ type: 'gave-back', leases: [...leases], code, message })
    then()
  }

  /** Once for each grant, when its push was answered or failed. */
  #askAgain(turn: number, modeEpoch: number): void {
    this.#context.agenda.later(
      this.#context.dice.between(0, RETRY_MS),
      () => `${this.#worker.id} is free again`,
      () => {
        if (!this.#worker.alive || this.#worker.core.asyncEpoch !== modeEpoch || this.#turn !== turn) return
        this.#turn++
        this.#worker.connection?.toCoordinator({ type: 'lease-request', modeEpoch })
      },
    )
  }

  validate({ version, leases }: MessageTo<'validate'>): void {
    const { agenda, dice } = this.#context
    if (this.#context.has('no-validation', this.#worker)) return
    for (const lease of leases)
      agenda.later(
        dice.between(0, COMPUTE_MS),
        () => `${this.#worker.id} validated ${lease.block}`,
        () => {
          const failure = this.#context.shards.failure(this.#worker.id, [lease.block], agenda.now)
          if (this.#worker.alive && failure !== undefined) return this.#giveBack([lease], failure, () => undefined)
          if (this.#worker.alive)
            this.#worker.connection?.toCoordinator({
              type: 'validated',
              version,
              lease,
              samples: 10,
              targets: 10,
              correct: 5,
              lossSum: 1,
            })
        },
      )
  }
}

/** The coordinator answered, and its file is damaged; a line that breaks says nothing of a file. */
export function reportUnreadable(
  { counts }: Pick<Context, 'counts'>,
  connection: Connection | undefined,
  blocks: readonly BlockId[],
  code: ErrorCode,
): void {
  if (code !== 'shard-corrupt') return
  counts.unreadable++
  connection?.toCoordinator({ type: 'unreadable', blocks: [...blocks], code, message: 'the shard is damaged' })
}
