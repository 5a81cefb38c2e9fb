// One round of local training on one member (docs/STEPS.md). It makes H inner steps with the job's own optimizer on a
// private copy of the parameters. The difference that they made, weighted by its targets, goes into the ring in place
// of a gradient (A7). Source: DiLoCo (Douillard et al., 2023). Inner optimizer state stays here from round to round; it
// is in no version. In jobs with fragments the difference leaves piece by piece (fragment-stream.ts), and the private
// copy lives on, too.
import { type BlockId, SerialQueue, type StepRecord, type VersionRef } from '@starling-grid/protocol'
import { onAbort } from '../abort.ts'
import type { GradientLease } from '../compute.ts'
import type { Batches } from '../data/batch.ts'
import { allFinite } from '../floats.ts'
import type { BatchSums } from '../graph/executor.ts'
import { ResidentStateLost } from '../graph/resident-state-lost.ts'
import { FragmentStream, weightedDifference } from './fragment-stream.ts'
import { fragmentsOf } from './local-fragments.ts'
import { HostCopy, openPrivateCopy, type PrivateCopy, type PrivateCopyParts } from './private-copy.ts'
import { type InnerSteps, type RoundOrder, type RoundResult, RoundWork, type RoundWorkParts } from './round-work.ts'

export interface LocalRoundParts extends PrivateCopyParts {
  /** H: inner steps of a member in one round */
  readonly innerSteps: number
  readonly batches: Pick<Batches, 'of' | 'ahead'>
  /** absent: the whole difference leaves at the end of the round */
  readonly stream?: FragmentStream | undefined
  /** of blocks that are not learned from yet: the weight of a fragment that leaves before them */
  targetsOf(blocks: readonly BlockId[]): Promise<number>
}

/** Blocks that the private copy has learned from since `base`, and what they summed to. */
interface RoundProgress {
  readonly base: VersionRef
  /** where the schedule of the learning rate was at the base */
  readonly fromStep: number
  readonly blocks: BlockId[]
  /** of each inner step */
  readonly steps: (readonly BlockId[])[]
  samples: number
  sums: BatchSums
}

/** `fragments`: into how many the model is cut; they leave one after the other. */
export function openLocalRounds(parts: Omit<LocalRoundParts, 'stream'>, fragments = 1): LocalRounds {
  const { layout } = parts.rule
  return new LocalRounds({
    ...parts,
    stream: fragments === 1 ? undefined : new FragmentStream(fragmentsOf(layout, fragments), layout.total),
  })
}

export class LocalRounds implements InnerSteps {
  readonly #parts: LocalRoundParts
  /** in jobs with fragments: those are cut from a copy that is here */
  readonly #host: HostCopy | undefined
  #copy: PrivateCopy | undefined
  #progress: RoundProgress | undefined
  /**
   * gradients of inner steps, then the difference that they made: of the round under way, until it is over or the next
   * begins
   */
  #lease: GradientLease | undefined
  #releaseLease: () => void = () => undefined
  /** of a round that was cut: its last inner step may still write to the lease */
  #part: Float32Array | undefined
  readonly #queue = new SerialQueue()
  /** the version that holds what left of the private copy */
  #takesOver: VersionRef | undefined

  constructor(parts: LocalRoundParts) {
    this.#parts = parts
    this.#host = parts.stream && new HostCopy(parts)
    this.#copy = this.#host
  }

  /** A member's part in them, as the protocol sees it. */
  workOf(member: Omit<RoundWorkParts, 'rounds'>): RoundWork {
    return new RoundWork({ ...member, rounds: this })
  }

  /** H */
  get innerSteps(): number {
    return this.#parts.innerSteps
  }

  /** Of F fragments the runs of each; undefined: one. */
  get fragments(): FragmentStream['fragments'] | undefined {
    return this.#parts.stream?.fragments
  }

  /** Σ targets · (base − local) of the last round that ran to its end, or was cut */
  get contribution(): Float32Array {
    const contribution = this.#part ?? this.#parts.stream?.difference ?? this.#lease?.values
    if (contribution === undefined) throw new Error('internal: no round is under way')
    return contribution
  }

  /**
   * R10. `isOwn`: what left of this member's private copy is in the sum. A sum that was fetched (R7) says nothing of
   * it.
   */
  committed(version: VersionRef, kind: StepRecord['kind'], isOwn: boolean): void {
    this.#takesOver = isOwn && kind === 'round' ? version : undefined
  }

  /** Σ targets · (base − local) into `contribution`. Undefined when the generation ended before. */
  run(order: RoundOrder): Promise<RoundResult | undefined> {
    // A round that was cut short may still have a step under way.
    return this.#queue.run(() => this.#run(order))
  }

  async #run(order: RoundOrder): Promise<RoundResult | undefined> {
    if (order.signal.aborted) return undefined
    this.#endLease() // the round before is over, or this one would not have begun
    this.#part = undefined
    const lease = this.#parts.compute.buffers.lease()
    this.#lease = lease
    this.#releaseLease = onAbort(order.signal, () => this.#endLease())
    if (order.blocks.length === 0 && this.#host === undefined) return this.#nothing(order, lease)
    const progress = await this.#resume(order)
    if (order.signal.aborted) return undefined
    order.onLearned(progress)
    const ended = await this.#learn(progress, { ...order, lease })
    if (ended === 'cut') return this.#cut(order, progress)
    if (ended === 'not finite') {
      this.#progress = undefined
      return resultOf(progress, false)
    }
    if (ended === 'over') return undefined
    if (this.#host === undefined && !(await this.#difference(progress, { ...order, lease }))) return undefined
    return resultOf(progress, allFinite(this.contribution))
  }

  /** The inner steps that are left. */
  async #learn(progress: RoundProgress, order: LeasedOrder): Promise<RoundEnd> {
    const left = order.blocks.filter((block) => !progress.blocks.includes(block))
    const steps = innerBatches(left, order.innerSteps ?? this.#parts.innerSteps, order.blocks.length)
    const made = { made: progress.steps.length, left: steps.length }
    const stream = this.#host && (await this.#stream(this.#host, order, made))
    for (const [i, blocks] of steps.entries()) {
      if (order.signal.aborted) return 'over'
      const finite = await unlessCut(order.cut, this.#innerStep({ blocks, next: steps[i + 1] }, progress, order))
      if (finite === 'cut') return finite
      if (finite !== true) return finite === false ? 'not finite' : 'over'
      stream?.stepped(progress.steps.length)
    }
    stream?.end(progress.sums.targets)
    return 'learned'
  }

  /** It waits for no computation that is under way. */
  #nothing({ base, onLearned }: RoundOrder, { values }: GradientLease): RoundResult {
    this.#progress = undefined
    onLearned({ base, blocks: [] })
    values.fill(0)
    return { learned: 0, samples: 0, sums: { lossSum: 0, targets: 0, correct: 0 }, finite: true }
  }

  /** Into the lease. False: the generation ended before. */
  async #difference(progress: RoundProgress, order: LeasedOrder): Promise<boolean> {
    const local = await this.#read(progress, order)
    if (local === undefined || order.lease.isOver) return false
    weightedDifference(order.parameters, local, { weight: progress.sums.targets, into: order.lease.values })
    return true
  }

  /** Undefined: it learned nothing yet, or not from the first blocks alone. */
  async #cut(order: RoundOrder, progress: RoundProgress): Promise<RoundResult | undefined> {
    const { parameters, blocks } = order
    const isFirst = progress.blocks.every((block, i) => block === blocks[i])
    if (progress.steps.length === 0 || !isFirst || this.#parts.stream !== undefined) return undefined
    const local = await this.#copy?.latest().catch(undefinedIfLost)
    if (local === undefined || this.#progress !== progress) return undefined
    this.#part = new Float32Array(parameters.length)
    weightedDifference(parameters, local, { weight: progress.sums.targets, into: this.#part })
    return resultOf(progress, allFinite(this.#part))
  }

  #endLease(): void {
    this.#releaseLease()
    this.#lease?.end()
    this.#lease = undefined
  }

  /** Undefined: there is nothing to learn from. */
  async #stream(
    host: HostCopy,
    { parameters: base, blocks, onFragment, signal }: RoundOrder,
    { made, left }: { readonly made: number; readonly left: number },
  ): Promise<FragmentStream | undefined> {
    const { stream, targetsOf } = this.#parts
    if (blocks.length === 0 || stream === undefined) return undefined
    const weight = await targetsOf(blocks)
    const send = (fragment: number): void => void (signal.aborted || onFragment?.(fragment))
    stream.begin({ base, inner: host.parameters, weight, steps: made + left, send })
    return stream
  }

  /**
   * A7: inner progress outlives a new generation iff the base is the same version and the new assignment holds all that
   * was learned.
   */
  async #resume({ base, parameters, blocks, fromStep }: RoundOrder): Promise<RoundProgress> {
    const known = this.#progress
    if (known !== undefined && known.base.id === base.id && known.blocks.every((block) => blocks.includes(block)))
      return known
    this.#progress = undefined
    // the schedule of the learning rate counts steps of the run, of all members
    const first = fromStep ?? base.v * this.#parts.innerSteps
    const { stream } = this.#parts
    if (this.#host && stream?.whole === true && this.#takesOver?.id === base.id) {
      stream.takeOver(parameters, this.#host.parameters)
      this.#host.goOn(first)
    } else {
      this.#copy ??= await openPrivateCopy(this.#parts)
      await this.#copy.begin(parameters, first).catch(undefinedIfLost) // the first step finds it lost, too
    }
    this.#takesOver = undefined
    stream?.reset()
    const sums = { lossSum: 0, targets: 0, correct: 0 }
    this.#progress = { base, fromStep: first, blocks: [], steps: [], samples: 0, sums }
    return this.#progress
  }

  /**
   * Undefined: a ballot came meanwhile, or the round was cut. What this member said of its progress then must stay
   * true, so the step is not made.
   */
  async #innerStep(
    { blocks, next = [] }: { readonly blocks: readonly BlockId[]; readonly next?: readonly BlockId[] | undefined },
    progress: RoundProgress,
    order: LeasedOrder,
  ): Promise<boolean | undefined> {
    const batch = await this.#parts.batches.of(blocks)
    if (isOver(order)) return undefined // the device has other work by now
    void this.#parts.batches.ahead(next)
    const accept = (sums: BatchSums): boolean => {
      if (isOver(order)) return false
      progress.blocks.push(...blocks)
      progress.steps.push(blocks)
      progress.samples += batch.samples
      progress.sums = addSums(progress.sums, sums)
      order.onLearned(progress)
      return true
    }
    try {
      const step = await this.#copy?.step(batch, { ...order, accept })
      return step?.finite === false && isOver(order) ? undefined : step?.finite
    } catch (error) {
      undefinedIfLost(error)
      if (!(await this.#redo(progress, order))) return undefined
      return progress.steps.includes(blocks) ? true : this.#innerStep({ blocks }, progress, order)
    }
  }

  /** Undefined: the generation ended, or the round was cut. */
  async #read(progress: RoundProgress, order: LeasedOrder): Promise<Float32Array | undefined> {
    try {
      return await this.#copy?.read()
    } catch (error) {
      undefinedIfLost(error)
      return (await this.#redo(progress, order)) ? this.#read(progress, order) : undefined
    }
  }

  /**
   * The device took the private copy along. The steps that count are made again from the base on another one, without
   * the optimizer's vectors, as a newcomer makes them. False: the generation ended, or the round was cut, before; then
   * nothing counts any more.
   */
  async #redo(progress: RoundProgress, order: LeasedOrder): Promise<boolean> {
    this.#progress = undefined
    try {
      const copy = await openPrivateCopy(this.#parts)
      this.#copy = copy
      await copy.begin(order.parameters, progress.fromStep)
      for (const blocks of progress.steps) {
        const batch = await this.#parts.batches.of(blocks)
        const step = await copy.step(batch, { ...order, accept: () => !isOver(order) })
        if (step?.finite !== true) return false
      }
    } catch (error) {
      undefinedIfLost(error)
      return this.#redo(progress, order)
    }
    this.#progress = progress
    return true
  }
}

type RoundEnd = 'learned' | 'not finite' | 'cut' | 'over'
type LeasedOrder = RoundOrder & { readonly lease: GradientLease }

function isOver({ signal, cut }: RoundOrder): boolean {
  return signal.aborted || cut?.aborted === true
}

/** @throws what is no loss of the private copy */
function undefinedIfLost(error: unknown): undefined {
  if (!(error instanceof ResidentStateLost)) throw error
}

function resultOf({ blocks, samples, sums }: RoundProgress, finite: boolean): RoundResult {
  return { learned: blocks.length, samples, sums, finite }
}

/** What the step comes to, or 'cut' as soon as that is asked for. */
async function unlessCut<T>(cut: AbortSignal | undefined, step: Promise<T>): Promise<T | 'cut'> {
  if (cut === undefined) return step
  let forget = (): void => undefined
  const asked = new Promise<'cut'>((resolve) => {
    forget = onAbort(cut, () => resolve('cut'))
  })
  return Promise.race([step, asked]).finally(() => forget())
}

/** As many inner batches as steps are left in proportion to the blocks, of equal size but for the last. */
function innerBatches(left: readonly BlockId[], steps: number, assignment: number): BlockId[][] {
  const size = Math.max(1, Math.ceil(assignment / steps))
  return Array.from({ length: Math.ceil(left.length / size) }, (_, i) => left.slice(i * size, (i + 1) * size))
}

function addSums(a: BatchSums, b: BatchSums): BatchSums {
  return { lossSum: a.lossSum + b.lossSum, targets: a.targets + b.targets, correct: a.correct + b.correct }
}
