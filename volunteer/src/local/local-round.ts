// One round of local training on one member (docs/STEPS.md). It makes H inner steps with the job's own optimizer on a
// private copy of the parameters. The difference that they made, weighted by its targets, goes into the ring in place
// of a gradient (A7). Source: DiLoCo (Douillard et al., 2023). Inner optimizer state stays here from round to round; it
// is in no version. In jobs with fragments the difference leaves piece by piece (fragment-stream.ts), and the private
// copy lives on, too.
import { meanOfStep, nextVersion, type UpdateRule, type VersionContent } from '@starling-grid/model'
import { type BlockId, SerialQueue, type StepRecord, type VersionRef } from '@starling-grid/protocol'
import { createOptimizerState } from '@starling-grid/shaders'
import { onAbort } from '../abort.ts'
import type { Compute, GradientLease } from '../compute.ts'
import type { Batches } from '../data/batch.ts'
import { allFinite } from '../floats.ts'
import type { BatchSums } from '../graph/executor.ts'
import { FragmentStream, weightedDifference } from './fragment-stream.ts'
import { fragmentsOf } from './local-fragments.ts'
import { type InnerSteps, type RoundOrder, type RoundResult, RoundWork, type RoundWorkParts } from './round-work.ts'

export interface LocalRoundParts {
  /** of the inner steps */
  readonly rule: Pick<UpdateRule, 'layout' | 'optimizer'>
  readonly clipNorm: number | undefined
  /** H: inner steps of a member in one round */
  readonly innerSteps: number
  readonly compute: Compute
  readonly batches: Batches
  /** absent: the whole difference leaves at the end of the round */
  readonly stream?: FragmentStream | undefined
  /** of blocks that are not learned from yet: the weight of a fragment that leaves before them */
  targetsOf(blocks: readonly BlockId[]): Promise<number>
}

/** Blocks that the private copy has learned from since `base`, and what they summed to. */
interface RoundProgress {
  readonly base: VersionRef
  readonly blocks: BlockId[]
  /** inner steps */
  steps: number
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
  readonly #inner: VersionContent
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
    const { layout, optimizer } = parts.rule
    this.#parts = parts
    this.#inner = {
      parameters: new Float32Array(layout.total),
      optimizerState: createOptimizerState(optimizer, layout.trained),
    }
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
    const progress = this.#resume(order)
    order.onLearned(progress)
    const left = order.blocks.filter((block) => !progress.blocks.includes(block))
    const steps = innerBatches(left, order.innerSteps ?? this.#parts.innerSteps, order.blocks.length)
    const stream =
      this.#parts.stream &&
      (await this.#stream(this.#parts.stream, order, { made: progress.steps, left: steps.length }))
    for (const blocks of steps) {
      if (order.signal.aborted) return undefined
      const finite = await unlessCut(order.cut, this.#innerStep(blocks, progress, { ...order, lease }))
      if (finite === 'cut') return this.#cut(order, progress)
      if (finite === undefined) return undefined
      if (!finite) {
        this.#progress = undefined
        return resultOf(progress, finite)
      }
      stream?.stepped(progress.steps)
    }
    stream?.end(progress.sums.targets)
    if (this.#parts.stream === undefined)
      weightedDifference(order.parameters, this.#inner.parameters, {
        weight: progress.sums.targets,
        into: lease.values,
      })
    return resultOf(progress, allFinite(this.contribution))
  }

  /** Undefined: it learned nothing yet, or not from the first blocks alone. */
  #cut({ parameters, blocks }: RoundOrder, progress: RoundProgress): RoundResult | undefined {
    const isFirst = progress.blocks.every((block, i) => block === blocks[i])
    if (progress.steps === 0 || !isFirst || this.#parts.stream !== undefined) return undefined
    this.#part = new Float32Array(parameters.length)
    weightedDifference(parameters, this.#inner.parameters, { weight: progress.sums.targets, into: this.#part })
    return resultOf(progress, allFinite(this.#part))
  }

  #endLease(): void {
    this.#releaseLease()
    this.#lease?.end()
    this.#lease = undefined
  }

  /** Undefined: there is nothing to learn from. */
  async #stream(
    stream: FragmentStream,
    { parameters: base, blocks, onFragment, signal }: RoundOrder,
    { made, left }: { readonly made: number; readonly left: number },
  ): Promise<FragmentStream | undefined> {
    if (blocks.length === 0) return undefined
    const weight = await this.#parts.targetsOf(blocks)
    const send = (fragment: number): void => void (signal.aborted || onFragment?.(fragment))
    stream.begin({ base, inner: this.#inner.parameters, weight, steps: made + left, send })
    return stream
  }

  /**
   * A7: inner progress outlives a new generation iff the base is the same version and the new assignment holds all that
   * was learned.
   */
  #resume({ base, parameters, blocks, fromStep }: RoundOrder): RoundProgress {
    const known = this.#progress
    if (known !== undefined && known.base.id === base.id && known.blocks.every((block) => blocks.includes(block)))
      return known
    const stream = this.#parts.stream
    if (stream?.whole === true && this.#takesOver?.id === base.id) stream.takeOver(parameters, this.#inner.parameters)
    else this.#inner.parameters.set(parameters)
    this.#takesOver = undefined
    stream?.reset()
    // the schedule of the learning rate counts steps of the run, of all members
    this.#inner.optimizerState.step = fromStep ?? base.v * this.#parts.innerSteps
    this.#progress = { base, blocks: [], steps: 0, samples: 0, sums: { lossSum: 0, targets: 0, correct: 0 } }
    return this.#progress
  }

  /**
   * Undefined: a ballot came meanwhile, or the round was cut. What this member said of its progress then must stay
   * true, so the step is not made.
   */
  async #innerStep(
    blocks: readonly BlockId[],
    progress: RoundProgress,
    order: RoundOrder & { readonly lease: GradientLease },
  ): Promise<boolean | undefined> {
    const { compute, batches, rule, clipNorm } = this.#parts
    const batch = await batches.of(blocks)
    const computed = await compute.localGradient(order.lease, this.#inner.parameters, batch)
    if (computed === undefined || order.signal.aborted || order.cut?.aborted === true) return undefined
    const { sums, finite } = computed
    if (!finite) return false
    const mean = meanOfStep(rule, order.lease.values, { targets: sums.targets, clipNorm })
    nextVersion(atRate(rule, order.rate), this.#inner, mean, this.#inner)
    progress.blocks.push(...blocks)
    progress.steps++
    progress.samples += batch.samples
    progress.sums = addSums(progress.sums, sums)
    order.onLearned(progress)
    return true
  }
}

function resultOf({ blocks, samples, sums }: RoundProgress, finite: boolean): RoundResult {
  return { learned: blocks.length, samples, sums, finite }
}

function atRate(rule: LocalRoundParts['rule'], rate = 1): LocalRoundParts['rule'] {
  const { optimizer } = rule
  return rate === 1 ? rule : { ...rule, optimizer: { ...optimizer, lr: rate * optimizer.lr } }
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
