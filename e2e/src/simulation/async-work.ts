// What a member does beside the ring: leases of async mode, computed and pushed, and validation blocks.
import type { MemberId, MessageTo, Push } from '@starling-grid/protocol'
import type { MemberCore } from '@starling-grid/volunteer'
import type { Connection } from './connection.ts'
import type { Context } from './context.ts'

/** ms that computing takes at most: sometimes longer than a lease */
const COMPUTE_MS = 2500
/** of the pushes: how many are sent again although the first arrived */
const REPEATED = 0.15

interface Worker {
  readonly id: MemberId
  readonly core: MemberCore
  readonly alive: boolean
  readonly connection: Connection | undefined
}

export class AsyncWork {
  readonly #context: Context
  readonly #worker: Worker

  constructor(context: Context, worker: Worker) {
    this.#context = context
    this.#worker = worker
  }

  granted({ modeEpoch, base, leases }: MessageTo<'grant'>): void {
    const { id } = this.#worker
    const { agenda, dice } = this.#context
    if (modeEpoch !== this.#worker.core.asyncEpoch) return
    const blocks = leases.map(({ block }) => block)
    agenda.later(dice.between(0, COMPUTE_MS), () => `${id} computed [${blocks.join(' ')}]`, () => {
      if (!this.#worker.alive) return
      const gradient = this.#context.history.gradient(blocks)
      if (this.#context.poisoned(blocks)) gradient[0] = Number.NaN
      const samples = blocks.length
      this.#push({ incarnation: id, modeEpoch, base, leases, samples, targets: samples, lossSum: samples, correct: 0 }, gradient)
    })
  }

  #push(push: Push, gradient: Float32Array): void {
    const { connection, id } = this.#worker
    if (connection === undefined) return
    const { agenda, dice } = this.#context
    const blocks = push.leases.map(({ block, leaseEpoch }) => `${block}/${leaseEpoch}`).join(' ')
    const arrive = (): void => {
      if (connection.coordinator.pushed(push, gradient)) agenda.send(`${id}⇊`, () => `${id} hears about its push`, () => this.#askAgain(push.modeEpoch))
    }
    agenda.send(`${id}⇈`, () => `${id} pushes [${blocks}]`, arrive)
    if (dice.chance(REPEATED)) agenda.later(dice.between(0, COMPUTE_MS), () => `${id} pushes [${blocks}] again`, arrive)
  }

  #askAgain(modeEpoch: number): void {
    if (this.#worker.alive && this.#worker.core.asyncEpoch === modeEpoch) this.#worker.connection?.toCoordinator({ type: 'lease-request', modeEpoch })
  }

  validate({ version, leases }: MessageTo<'validate'>): void {
    const { agenda, dice } = this.#context
    for (const lease of leases)
      agenda.later(dice.between(0, COMPUTE_MS), () => `${this.#worker.id} validated ${lease.block}`, () => {
        if (this.#worker.alive) this.#worker.connection?.toCoordinator({ type: 'validated', version, lease, samples: 10, correct: 5, lossSum: 1 })
      })
  }
}
