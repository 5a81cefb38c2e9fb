// A model on this machine's adapter, for a loop that the program writes itself.
import { createHash } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import {
  exportModel,
  initialParameters,
  initialVersionState,
  type ModelSpec,
  nextVersion,
  parameterLayout,
  parseOptimizerSpec,
} from '@starling-grid/model'
import { versionId } from '@starling-grid/protocol'
import { meanGradient, type OptimizerSpec } from '@starling-grid/shaders'
import type { AdapterDescription, Batch, Executor } from '@starling-grid/volunteer'
import { type ExecutorChoice, openExecutor } from './executor.ts'

export interface ModelOptions extends ExecutorChoice {
  /** of the first parameters (default 0) */
  readonly seed?: number
}

export interface Optimizer {
  /** One step along the mean gradient (parameterCount,), which it may overwrite. */
  step(gradient: Float32Array): Promise<void>
}

export interface LoopModel {
  readonly spec: ModelSpec
  /** the device that computes */
  readonly adapter: AdapterDescription
  /** (parameterCount,) in the order of the model's layout; the program may write into it between two calls */
  readonly parameters: Float32Array
  /** Mean loss and its gradient over a batch. The gradient is overwritten by the next call. */
  gradient(batch: Batch): Promise<{ readonly loss: number; readonly gradient: Float32Array }>
  /** Mean loss, and the fraction of targets that were right, without a gradient. */
  evaluate(batch: Batch): Promise<{ readonly loss: number; readonly accuracy: number }>
  /** (samples, …output shape) */
  predict(x: Batch['x'], samples: number): Promise<Float32Array>
  /** Updates `parameters` step by step. @throws GridError 'job-invalid' for a wrong spec */
  optimizer(spec: OptimizerSpec): Optimizer
  /** A safetensors file under PyTorch's names. */
  save(file: string): Promise<void>
  /** Releases the device. */
  close(): void
}

/**
 * @throws GridError 'no-adapter' where no device computes WebGPU
 * @example const model = await openModel(lenet5())
 */
export async function openModel(spec: ModelSpec, options: ModelOptions = {}): Promise<LoopModel> {
  const { executor, close } = await openExecutor(spec, options)
  return new OpenModel(spec, executor, { close, parameters: initialParameters(spec, options.seed ?? 0) })
}

class OpenModel implements LoopModel {
  readonly spec: ModelSpec
  readonly parameters: Float32Array<ArrayBuffer>
  readonly #executor: Executor
  readonly #close: () => void
  readonly #gradient: Float32Array
  #steps = 0

  constructor(
    spec: ModelSpec,
    executor: Executor,
    parts: { readonly close: () => void; readonly parameters: Float32Array<ArrayBuffer> },
  ) {
    this.spec = spec
    this.parameters = parts.parameters
    this.#executor = executor
    this.#close = parts.close
    this.#gradient = new Float32Array(parts.parameters.length)
  }

  get adapter(): AdapterDescription {
    return this.#executor.adapter
  }

  async gradient(batch: Batch): Promise<{ readonly loss: number; readonly gradient: Float32Array }> {
    this.#executor.loadParameters(this.parameters)
    const { lossSum, targets } = await this.#executor.gradient(batch, this.#gradient)
    meanGradient(this.#gradient, targets, this.#gradient)
    return { loss: lossSum / targets, gradient: this.#gradient }
  }

  async evaluate(batch: Batch): Promise<{ readonly loss: number; readonly accuracy: number }> {
    this.#executor.loadParameters(this.parameters)
    const { lossSum, targets, correct } = await this.#executor.evaluate(batch)
    return { loss: lossSum / targets, accuracy: correct / targets }
  }

  predict(x: Batch['x'], samples: number): Promise<Float32Array> {
    this.#executor.loadParameters(this.parameters)
    return this.#executor.predict(x, samples)
  }

  optimizer(spec: OptimizerSpec): Optimizer {
    const optimizer = parseOptimizerSpec(spec)
    const rule = { layout: parameterLayout(this.spec), optimizer }
    const version = { ...initialVersionState(this.spec, optimizer, 0), parameters: this.parameters }
    return {
      step: async (gradient) => {
        nextVersion(rule, version, gradient, version)
        this.#steps++
      },
    }
  }

  async save(file: string): Promise<void> {
    const id = versionId(createHash('sha256').update(this.parameters).digest('hex')) // of no run: of what it holds
    const layout = parameterLayout(this.spec)
    await writeFile(
      file,
      exportModel({ spec: this.spec, layout, parameters: this.parameters, version: { v: this.#steps, id } }),
    )
  }

  close(): void {
    this.#executor.destroy()
    this.#close()
  }
}
