// Inner steps that stay with an executor of this process, without a device: exact, so that rounds over them can be held
// to rounds over the host bit by bit. It can be lost, as a device can.
import { meanOfStep, nextVersion, type ModelSpec, parameterLayout } from '@starling-grid/model'
import { GridError } from '@starling-grid/protocol'
import { createOptimizerState, type OptimizerSpec } from '@starling-grid/shaders'
import { createReferenceExecutor } from '../src/cpu/executor.ts'
import type { Executor, ResidentTraining } from '../src/graph/executor.ts'

export interface InProcessTraining {
  readonly executor: Executor
  /** calls of each kind, in order */
  readonly calls: ('set' | 'step' | 'read')[]
  /** From now on every call says that the device was lost. */
  lose(): void
}

export function inProcessTraining(spec: ModelSpec): InProcessTraining {
  const plain = createReferenceExecutor(spec)
  const calls: InProcessTraining['calls'] = []
  let isLost = false
  const noted = <T>(kind: InProcessTraining['calls'][number], task: () => Promise<T>): Promise<T> => {
    calls.push(kind)
    return task().then((result) => {
      if (isLost) throw new GridError('device-lost', 'The device was lost.')
      return result
    })
  }
  const resident = async (optimizer: OptimizerSpec): Promise<ResidentTraining> =>
    trainingOn(plain, spec, { optimizer, noted })
  const lose = (): void => {
    isLost = true
  }
  return { executor: { ...plain, resident }, calls, lose }
}

interface TrainingOptions {
  readonly optimizer: OptimizerSpec
  noted<T>(kind: InProcessTraining['calls'][number], task: () => Promise<T>): Promise<T>
}

function trainingOn(executor: Executor, spec: ModelSpec, { optimizer, noted }: TrainingOptions): ResidentTraining {
  const layout = parameterLayout(spec)
  const own = {
    parameters: new Float32Array(layout.total),
    optimizerState: createOptimizerState(optimizer, layout.trained),
  }
  const gradient = new Float32Array(layout.total)
  return {
    set: (parameters) => noted('set', async () => own.parameters.set(parameters)),
    step: (batch, { optimizer: rule, state, clipNorm, wanted }) =>
      noted('step', async () => {
        executor.loadParameters(own.parameters)
        const sums = await executor.gradient(batch, gradient)
        if (!wanted(sums)) return { ...sums, finite: true }
        const mean = meanOfStep({ layout }, gradient, { targets: sums.targets, clipNorm })
        own.optimizerState.step = state.step
        nextVersion({ layout, optimizer: rule }, own, mean, own)
        state.step++
        return { ...sums, finite: true }
      }),
    read: (into) => noted('read', async () => into.set(own.parameters)),
  }
}
