// The one writer of async mode (A1): holds the newest version in memory, adds up accepted pushes and makes each closed
// sum the next version. Which pushes are accepted, and when a sum is closed, is decided in run/leases.ts; this file
// only computes. One call at a time: the outbox of the run awaits each before the next.
import {
  type PushedGradient,
  type VersionForm,
  type VersionState,
  versionParts,
  writingRuns,
} from '@starling-grid/model'
import { type Clock, systemClock, type VersionId, type VersionRef } from '@starling-grid/protocol'
import type { OptimizerSpec, OptimizerState } from '@starling-grid/shaders'
import { copied } from '../blobs/stored.ts'
import { inTurns } from '../turns.ts'
import { addingPush, clearing } from './add-push.ts'
import { allocate, keptVersions, type ServerMemory } from './memory.ts'
import { clipFactor, firstBound, NormClip, normsOf } from './norm-clip.ts'
import { encodePushMemory, type PushMemory } from './push-memory.ts'
import { keyRanges, normOf, threadsFor } from './ranges.ts'
import { ANSWER_MS, localShards, type ShardPool, shardThreads } from './shard-pool.ts'
import { remoteShards, type ShardProcesses } from './shard-processes.ts'

export interface ServerOptions {
  readonly form: VersionForm
  /** the job's bound on the norm of a version's mean gradient */
  readonly clipNorm: number | undefined
  /** pushes are differences of rounds, which the outer optimizer takes */
  readonly rounds?: boolean
  /** λ of delay compensation; undefined: late pushes are taken as they are */
  readonly delayCompensation: number | undefined
  /** of this machine */
  readonly cores: number
  /** ms for a thread to answer; 30 s where it is not said */
  readonly answerMs?: number
  /** shards in processes of their own: used instead of threads when all of a set are there */
  readonly processes?: ShardProcesses
  /** absent: the machine's */
  readonly clock?: Clock
}

export interface Addition {
  readonly gradient: PushedGradient
  /** the targets that its Σ runs over */
  readonly targets: number
  /** version that it was computed at */
  readonly base: VersionRef
  /** factor for staleness, 0…1, times that of a crowd (run/groups/crowd-rate.ts), 1…1.5 */
  readonly damping: number
}

interface KeptVersion {
  readonly version: VersionRef
  /** number of its vector in memory */
  readonly index: number
}

/** What there is between load and unload. */
interface RunningServer {
  readonly memory: ServerMemory
  readonly pool: ShardPool
  readonly clip: NormClip
  /** what it remembered when the head was made */
  normsAtHead: readonly number[]
  /** oldest first; the last is the head */
  readonly kept: KeptVersion[]
  readonly place: string
  /** of the optimizer that pushes do not move: the outer one, or the inner one where pushes are rounds */
  readonly resting: OptimizerState | undefined
  /** which of the two states of the other optimizer is the head's */
  current: 0 | 1
  step: number
  scalars: Float64Array
  /** pushes in the open sum */
  pushes: number
}

export class ParameterServer {
  readonly #options: ServerOptions
  #running: RunningServer | undefined

  constructor(options: ServerOptions) {
    this.#options = options
  }

  get head(): VersionRef | undefined {
    return this.#running?.kept.at(-1)?.version
  }

  /**
   * A5: takes over at a version; what was held before is forgotten, but for what a checkpoint of its own remembers of
   * pushes.
   */
  async load(
    { version, parameters, optimizerState, outerState }: VersionState,
    remembered: PushMemory = { norms: [], square: undefined },
  ): Promise<void> {
    await this.unload()
    const { layout } = this.#options.form
    const optimizer = this.#optimizer
    const { moving, resting } = this.#statesOf({ optimizerState, outerState })
    const { clock = systemClock, answerMs = ANSWER_MS } = this.#options
    const processes = this.#options.processes?.complete()
    const threads = processes === undefined ? threadsFor(layout.total, this.#options.cores) : 0
    const memory = allocate(
      { layout, optimizer },
      { versions: keptVersions(layout.total), compensated: this.#compensates, shared: threads > 0 },
    )
    memory.versions[0]?.set(parameters)
    for (const [i, slot] of memory.slots[0].entries()) slot.set(moving.slots[i] ?? slot)
    if (remembered.square !== undefined) memory.square?.set(remembered.square)
    const rule = { layout, optimizer, rounds: this.#rounds }
    const shards = keyRanges(layout.total, threads).map((range) => ({ rule, range, memory }))
    const here = (): Promise<ShardPool> | ShardPool =>
      threads > 0 ? shardThreads(shards, { clock, answerMs }) : localShards(shards)
    const pool =
      processes === undefined
        ? await here()
        : await remoteShards(processes, { rule, memory, compensated: this.#compensates })
    const { step, scalars } = moving
    const ownThreads = threads > 0 ? `${shards.length} threads` : "the coordinator's own thread"
    const place = processes === undefined ? ownThreads : `${processes.length} processes`
    this.#running = {
      memory,
      pool,
      place,
      clip: new NormClip(remembered.norms, firstBound(parameters, optimizer.lr)),
      normsAtHead: remembered.norms,
      kept: [{ version, index: 0 }],
      resting,
      current: 0,
      step,
      scalars,
      pushes: 0,
    }
    await pool.run({ type: 'load', step, scalars })
  }

  /** A6: the ring is the writer again, and no thread runs any more. An open sum goes: its blocks are in no record. */
  async unload(): Promise<void> {
    const running = this.#running
    this.#running = undefined
    await running?.pool.stop()
  }

  /**
   * A2. Adds a push to the open sum, bounded by the running median of norms; returns the norm of its mean gradient
   * before.
   */
  async add({ gradient, targets, base, damping }: Addition): Promise<number> {
    const running = this.#required
    const { pool, clip } = running
    const first = running.pushes === 0
    if (first) running.normsAtHead = [...clip.norms]
    // Shards in this memory need no copy of a push that is taken as it is.
    const isCopied = this.#compensates || pool.take !== undefined
    if (isCopied) await this.#bring(gradient, running)
    const norm = this.#compensates
      ? await this.#correctedNorm(running, { targets, base, first })
      : normsOf(gradient, targets).gradient
    const factor = Number.isFinite(norm) ? clip.factorOf(norm) * damping : 0
    if (isCopied) await pool.run({ type: 'accumulate', factor, first })
    else await inTurns(this.#joining(gradient, { sum: running.memory.sum, factor, first }), this.#clock)
    running.pushes++
    return norm
  }

  /** Shards elsewhere decode their part themselves: what leaves the coordinator is what came. */
  async #bring(gradient: PushedGradient, { memory, pool }: RunningServer): Promise<void> {
    const encoded = pool.take && gradient.encoded
    if (encoded === undefined) await inTurns(writingRuns(gradient.runs(), memory.gradient), this.#clock)
    await pool.take?.(encoded)
  }

  /** Of the push that was brought, once it is corrected for the versions since its base. */
  async #correctedNorm(
    running: RunningServer,
    { targets, base, first }: Pick<Addition, 'targets' | 'base'> & { readonly first: boolean },
  ): Promise<number> {
    const { delayCompensation: strength = 0 } = this.#options
    const [head, from] = [headOf(running), running.kept.find(({ version }) => version.id === base.id)]
    if (from === undefined)
      throw new Error(`internal: version ${base.v} is no longer kept, and its pushes are to be compensated`)
    const indices = { head: head.index, base: from.index }
    return normOf(await running.pool.run({ type: 'prepare', targets, ...indices, strength, first })) / targets
  }

  *#joining(
    gradient: PushedGradient,
    { sum, factor, first }: { readonly sum: Float32Array; readonly factor: number; readonly first: boolean },
  ): Generator<undefined, void> {
    if (first) yield* clearing(sum)
    const { trained } = this.#options.form.layout
    yield* addingPush(sum, gradient, { trained, weights: { gradient: factor, statistics: 1 } })
  }

  /**
   * A3. The open sum becomes a version; returns the norm of the mean gradient over its `targets`, before the job's
   * bound.
   */
  async close(version: VersionRef, targets: number): Promise<number> {
    const running = this.#required
    const head = headOf(running)
    if (version.v !== head.version.v + 1 || running.pushes === 0)
      throw new Error(`internal: version ${version.v} cannot follow ${head.version.v} with ${running.pushes} pushes`)
    const norm = normOf(await running.pool.run({ type: 'mean', targets }))
    // the job's bound is on gradients, and members of a round kept to it in their inner steps
    const bound = this.#rounds ? undefined : this.#options.clipNorm
    const factor = Number.isFinite(norm) ? clipFactor(norm, bound ?? Number.POSITIVE_INFINITY) : 0
    const to = freeVector(running)
    const [answer] = await running.pool.run({ type: 'apply', factor, from: head.index, to })
    if (answer === undefined) throw new Error('internal: a parameter server without shards')
    running.step = answer[0] ?? 0
    running.scalars = answer.slice(1)
    running.current = running.current === 0 ? 1 : 0
    running.pushes = 0
    running.kept.push({ version, index: to })
    return norm
  }

  /** Parameters of a recent version, to be read at once: they are written over when newer versions need the room. */
  parametersOf(id: VersionId): { readonly version: VersionRef; readonly parameters: Float32Array } | undefined {
    const running = this.#running
    const kept = running?.kept.find(({ version }) => version.id === id)
    const parameters = kept === undefined ? undefined : running?.memory.versions[kept.index]
    return kept === undefined || parameters === undefined ? undefined : { version: kept.version, parameters }
  }

  /**
   * The newest version as bytes, for a checkpoint (A4), and what is remembered of the pushes up to it. The open sum is
   * in neither.
   */
  async encode(): Promise<{
    readonly version: VersionRef
    readonly bytes: Uint8Array<ArrayBuffer>
    readonly remembered: Uint8Array<ArrayBuffer>
  }> {
    const running = this.#required
    const open = running.pushes > 0
    await running.pool.collect?.(running.current, open ? 'at head' : 'now')
    const { memory, current, step, scalars, resting } = running
    const { version, index } = headOf(running)
    const parameters = memory.versions[index] ?? new Float32Array(0)
    const moving = { step, scalars, slots: memory.slots[current] }
    const remembered = encodePushMemory(version, {
      norms: open ? running.normsAtHead : running.clip.norms,
      square: open ? memory.squareAtHead : memory.square,
    })
    const states = this.#rounds
      ? { optimizerState: resting ?? moving, outerState: moving }
      : { optimizerState: moving, ...(resting === undefined ? {} : { outerState: resting }) }
    const state = { version, parameters, ...states }
    return {
      version,
      remembered,
      bytes: await copied(versionParts({ ...this.#options.form, ...state }), this.#clock),
    }
  }

  get #rounds(): boolean {
    return this.#options.rounds === true
  }

  /** That pushes move. */
  get #optimizer(): OptimizerSpec {
    const { optimizer, outer } = this.#options.form
    if (!this.#rounds) return optimizer
    if (outer === undefined) throw new Error('internal: rounds in a job without an outer optimizer')
    return outer
  }

  #statesOf({
    optimizerState,
    outerState,
  }: {
    readonly optimizerState: OptimizerState
    readonly outerState: OptimizerState | undefined
  }): {
    readonly moving: OptimizerState
    readonly resting: OptimizerState | undefined
  } {
    if (!this.#rounds) return { moving: optimizerState, resting: outerState }
    if (outerState === undefined) throw new Error('internal: a version without a state of the outer optimizer')
    return { moving: outerState, resting: optimizerState }
  }

  /** Where it computes, in words. */
  get place(): string {
    return this.#running?.place ?? 'nowhere'
  }

  get #clock(): Clock {
    return this.#options.clock ?? systemClock
  }

  get #compensates(): boolean {
    return this.#options.delayCompensation !== undefined
  }

  get #required(): RunningServer {
    if (this.#running === undefined) throw new Error('internal: the parameter server holds no version')
    return this.#running
  }
}

function headOf({ kept }: RunningServer): KeptVersion {
  const head = kept.at(-1)
  if (head === undefined) throw new Error('internal: a parameter server without a head')
  return head
}

/** The oldest kept vector is written over: versions come faster than a garbage collector likes. */
function freeVector({ kept, memory }: RunningServer): number {
  const oldest = kept.length >= memory.versions.length ? kept.shift() : undefined
  return oldest?.index ?? kept.length
}
