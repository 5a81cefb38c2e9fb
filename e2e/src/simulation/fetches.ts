// How a member gets to the target of a ballot: it asks a source, or the coordinator, and stages what comes (R7).
import { type MemberId, sameVersion, type VersionRef } from '@starling-grid/protocol'
import type { MemberCore, MemberInput } from '@starling-grid/volunteer/member'
import type { Replica } from '../world/history.ts'
import type { Connection } from './connection.ts'
import type { Context, FetchWish } from './context.ts'

/** of the answers between members: how many come twice, because the question was repeated */
const REPEATED = 0.25

/** what counts as one fetch, for a newcomer that learns and for a member of a ballot */
const COUNTED = {
  state: { learning: 'prefetches', forming: 'stateFetches' },
  reduced: { learning: 'followedSteps', forming: 'catchUps' },
} as const

/** ms instead of Scenario.transferMs for a member that lost its coordinator: its network is bad */
const BAD_NETWORK_MS = 8000

interface Asker {
  readonly id: MemberId
  readonly seat: number
  readonly core: MemberCore
  readonly connection: Connection | undefined
  take(input: MemberInput): void
}

interface Wanted {
  readonly generation: number
  readonly target: VersionRef
  readonly sources: readonly MemberId[]
  readonly coordinatorHolds?: boolean
}

export class Fetches {
  readonly #context: Context
  readonly #asker: Asker
  #state: Replica | undefined
  #reduced: { readonly version: VersionRef; readonly sum: Float32Array } | undefined

  constructor(context: Context, asker: Asker) {
    this.#context = context
    this.#asker = asker
  }

  begin(kind: FetchWish['kind'], wanted: Wanted): void {
    const source = this.#context.dice.pick(wanted.sources)
    if (source === undefined) return this.#download(wanted)
    const wish = { kind, generation: wanted.generation, version: wanted.target }
    this.#carry(source, 'asks', wish, () => {
      this.#context.moment(source, { at: 'asked' })
      const peer = this.#context.peer(source)
      const answer = peer?.alive === true ? peer.serve(wish) : undefined
      const arrive = (): void => this.#answered(wish, source, answer)
      this.#carry(source, answer === undefined ? 'is refused by' : 'hears from', wish, arrive)
      if (this.#context.dice.chance(REPEATED)) this.#carry(source, 'hears again from', wish, arrive)
    })
  }

  /** A1: over HTTP, while the coordinator keeps it. `stage` says whether there is a place for it. */
  beginOffRing(
    wanted: { readonly generation: number; readonly id: number },
    stage: (sum: { readonly id: number; readonly sum: Float32Array }) => boolean,
  ): void {
    const { generation, id } = wanted
    const { agenda, dice, scenario } = this.#context
    agenda.later(
      dice.between(0, scenario.transferMs),
      () => `${this.#asker.id} gets sum ${id} of off-ring members, g${generation}`,
      () => {
        if (this.#isLost()) return this.beginOffRing(wanted, stage)
        const { connection, core } = this.#asker
        const sum = connection?.up === true ? connection.coordinator.offRingSum(id) : undefined
        if (sum === undefined || core.ring?.generation !== generation) return
        if (stage({ id, sum })) this.#asker.take({ type: 'off-ring-fetched', generation, id })
      },
    )
  }

  #carry(source: MemberId, verb: string, { kind, version, generation }: FetchWish, act: () => void): void {
    const { id } = this.#asker
    const { agenda, dice, scenario } = this.#context
    const most = this.#asker.connection?.up === true ? scenario.transferMs : BAD_NETWORK_MS
    agenda.later(
      dice.between(0, most),
      () => `${id} ${verb} ${source}: ${kind} of version ${version.v}, g${generation}`,
      act,
    )
  }

  #answered(wish: FetchWish, source: MemberId, answer: Float32Array | undefined): void {
    const { generation, kind, version } = wish
    if (!this.#wants(generation)) return
    if (answer === undefined && kind === 'reduced') return this.#asker.take({ type: 'reduced-missing', generation })
    if (answer === undefined) return this.#failed(generation, source)
    const learning = this.#asker.core.learning?.generation === generation
    this.#context.counts[COUNTED[kind][learning ? 'learning' : 'forming']]++
    if (kind === 'state') this.#state = { version, counts: answer }
    else this.#reduced = { version, sum: answer }
    this.#asker.take({ type: kind === 'state' ? 'state-fetched' : 'reduced-fetched', generation, version })
  }

  /** The coordinator answered, and the answer is lost: the request is made again. */
  #isLost(): boolean {
    const lost = this.#context.dice.chance(this.#context.scenario.lostAnswers)
    if (lost) this.#context.counts.lostAnswers++
    return lost
  }

  #download(wanted: Wanted): void {
    const { generation, target, coordinatorHolds } = wanted
    if (coordinatorHolds !== true) return this.#failed(generation, null)
    const { agenda, dice, scenario } = this.#context
    agenda.later(
      dice.between(0, scenario.transferMs),
      () => `${this.#asker.id} downloads version ${target.v}`,
      () => {
        if (!this.#wants(generation)) return
        if (this.#isLost()) return this.#download(wanted)
        const stored = this.#context.has('no-downloads', this.#asker) ? undefined : this.#context.stored(target)
        if (stored === undefined) return this.#failed(generation, null)
        this.#context.counts.coordinatorFetches++
        this.#state = stored
        this.#asker.take({ type: 'state-fetched', generation, version: target })
      },
    )
  }

  /** It forms a ring, or learns beside it. */
  #wants(generation: number): boolean {
    const { ring, learning } = this.#asker.core
    return ring?.generation === generation || learning?.generation === generation
  }

  #failed(generation: number, blamed: MemberId | null): void {
    this.#context.agenda.later(
      0,
      () => `${this.#asker.id} finds no source for g${generation}`,
      () =>
        this.#asker.take({
          type: 'trouble',
          generation,
          blamed,
          why: 'own',
          code: 'link-lost',
          message: 'the version could not be fetched',
        }),
    )
  }

  takeState(version: VersionRef): Replica {
    if (this.#state === undefined || !sameVersion(this.#state.version, version))
      throw new Error(`internal: version ${version.v} is not staged`)
    return { version, counts: this.#state.counts.slice() }
  }

  /** The staged sum of this version, if it was fetched. */
  takeReduced(version: VersionRef): Float32Array | undefined {
    return this.#reduced !== undefined && sameVersion(this.#reduced.version, version) ? this.#reduced.sum : undefined
  }
}
