// The private copy of the parameters that inner steps change, with the optimizer's vectors: in this process, or where
// gradients are computed. What a round makes of it is local-round.ts.
import { meanOfStep, nextVersion, type UpdateRule, type VersionContent } from '@starling-grid/model'
import { createOptimizerState, type OptimizerSpec, type OptimizerState } from '@starling-grid/shaders'
import type { Compute, Computed, GradientLease } from '../compute.ts'
import type { Batch, BatchSums, ResidentTraining } from '../graph/executor.ts'

export interface PrivateCopyParts {
  /** of the inner steps */
  readonly rule: Pick<UpdateRule, 'layout' | 'optimizer'>
  readonly clipNorm: number | undefined
  readonly compute: Compute
}

export interface InnerStepOrder {
  /** memory for the gradient, where the host needs one */
  readonly lease: GradientLease
  /** factor of the learning rate; absent: 1 */
  readonly rate?: number | undefined
  /**
   * Asked once, when the gradient is there and finite. True: the step counts, and is made without another question. It
   * is made at once, or never: the copy holds all steps that count, when no other call is under way.
   */
  accept(sums: BatchSums): boolean
}

export interface PrivateCopy {
  /**
   * Takes the parameters of a version over. `step`: where the schedule of the learning rate goes on. The optimizer's
   * vectors stay as the rounds before left them.
   */
  begin(parameters: Float32Array, step: number): Promise<void>
  /**
   * One step of the optimizer. Undefined: it was not accepted, or the lease is over. Not finite: it was not made.
   * @throws ResidentStateLost
   */
  step(batch: Batch, order: InnerStepOrder): Promise<Computed | undefined>
  /** The parameters, as they are until the next call. @throws ResidentStateLost */
  read(): Promise<Float32Array>
  /**
   * The same while a step may be under way, which is not waited for where that takes long. @throws ResidentStateLost
   */
  latest(): Promise<Float32Array>
}

/**
 * ms of a step on a device from which the parameters are brought after each: who leaves has four seconds to hand in
 * what it has learned, and the device ends what it has begun first.
 */
const SLOW_STEP_MS = 1000

/** Where the executor can keep it, else here. */
export async function openPrivateCopy(parts: PrivateCopyParts): Promise<PrivateCopy> {
  const training = await parts.compute.resident(parts.rule.optimizer)
  return training === undefined ? new HostCopy(parts) : new DeviceCopy(parts, training)
}

export class HostCopy implements PrivateCopy {
  readonly #parts: PrivateCopyParts
  readonly #content: VersionContent

  constructor(parts: PrivateCopyParts) {
    const { layout, optimizer } = parts.rule
    this.#parts = parts
    this.#content = {
      parameters: new Float32Array(layout.total),
      optimizerState: createOptimizerState(optimizer, layout.trained),
    }
  }

  get parameters(): Float32Array {
    return this.#content.parameters
  }

  async begin(parameters: Float32Array, step: number): Promise<void> {
    this.parameters.set(parameters)
    this.goOn(step)
  }

  /** Its parameters are in place already. */
  goOn(step: number): void {
    this.#content.optimizerState.step = step
  }

  async step(batch: Batch, { lease, rate, accept }: InnerStepOrder): Promise<Computed | undefined> {
    const { compute, rule, clipNorm } = this.#parts
    const computed = await compute.localGradient(lease, this.parameters, batch)
    if (computed?.finite !== true) return computed
    const { targets } = computed.sums
    if (!accept(computed.sums)) return undefined
    if (targets === 0) return computed
    const mean = meanOfStep(rule, lease.values, { targets, clipNorm })
    nextVersion({ ...rule, optimizer: atRate(rule.optimizer, rate) }, this.#content, mean, this.#content)
    return computed
  }

  async read(): Promise<Float32Array> {
    return this.parameters
  }

  latest(): Promise<Float32Array> {
    return this.read()
  }
}

class DeviceCopy implements PrivateCopy {
  readonly #parts: PrivateCopyParts
  readonly #training: ResidentTraining
  /** what was sent there or brought from there last */
  readonly #mirror: Float32Array
  /** it holds all steps that count */
  #isLatest = false
  readonly #state: OptimizerState

  constructor(parts: PrivateCopyParts, training: ResidentTraining) {
    const { layout, optimizer } = parts.rule
    this.#parts = parts
    this.#training = training
    this.#mirror = new Float32Array(layout.total)
    this.#state = createOptimizerState(optimizer, 0)
  }

  begin(parameters: Float32Array, step: number): Promise<void> {
    this.#mirror.set(parameters)
    this.#isLatest = true
    this.#state.step = step
    return this.#training.set(this.#mirror)
  }

  async step(batch: Batch, { rate, accept }: InnerStepOrder): Promise<Computed | undefined> {
    const { compute, clipNorm, rule } = this.#parts
    let accepted = false
    const computed = await compute.residentStep(this.#training, batch, {
      optimizer: atRate(rule.optimizer, rate),
      state: this.#state,
      clipNorm,
      wanted: (sums) => {
        accepted = accept(sums)
        if (accepted) this.#isLatest = false
        return accepted
      },
    })
    if (accepted && computed.ms > SLOW_STEP_MS) await this.read()
    return computed.finite && !accepted ? undefined : computed
  }

  async read(): Promise<Float32Array> {
    this.#isLatest = false
    await this.#training.read(this.#mirror)
    this.#isLatest = true
    return this.#mirror
  }

  async latest(): Promise<Float32Array> {
    return this.#isLatest ? this.#mirror : this.read()
  }
}

function atRate(optimizer: OptimizerSpec, rate = 1): OptimizerSpec {
  return rate === 1 ? optimizer : { ...optimizer, lr: rate * optimizer.lr }
}
