// A trained model that answers: samples as its dataset had them, prepared as in training, and answers under the
// dataset's names.
import { readFile } from 'node:fs/promises'
import { type ModelFile, type ModelSpec, outputShape, readModelFile, takesTokens } from '@starling-grid/model'
import { describeError, elementsOf, GridError, type ModelSignature, storedElementsOf } from '@starling-grid/protocol'
import { type AdapterDescription, type Executor, SamplePreparation } from '@starling-grid/volunteer'
import { type ExecutorChoice, openExecutor } from './executor.ts'
import { contextOf, draws, nextToken } from './next-token.ts'
import { type TextTokens, textTokens } from './text-tokens.ts'

/** An answer under its name: a probability from 0 to 1, or a value in the unit of its column. */
export interface NamedNumber {
  readonly name: string
  readonly value: number
}

/** Of one sample: probabilities of classes, the most probable first; of labels, or values, in their columns' order. */
export interface Prediction {
  readonly kind: 'classes' | 'labels' | 'values'
  readonly answers: readonly NamedNumber[]
}

export interface WritingOptions {
  /** tokens to write (default 500) */
  readonly tokens?: number
  /** below 1 prefers what is likely, above 1 evens it out (default 0.8) */
  readonly temperature?: number
  /** only the most likely so many tokens; absent: all */
  readonly topK?: number
  /** of the draws (default 1337): the same text for the same seed */
  readonly seed?: number
}

export interface PredictorOptions extends ExecutorChoice {
  /** JSON of a tokenizer.json, in place of the one that the model carries */
  readonly tokenizer?: string
}

/** Samples that are computed at once; a GPU splits them as its memory asks. */
const BATCH = 256

/**
 * `model`: a file that `starling job export`, `starling train` or `save` of an own loop wrote, or the model of a job.
 * @throws GridError 'dataset-unreadable', 'model-invalid', 'version-corrupt'; 'no-adapter' where no device computes
 * WebGPU
 * @example const model = await openPredictor('digits.safetensors')
 */
export async function openPredictor(model: string | ModelFile, options: PredictorOptions = {}): Promise<Predictor> {
  return predictorOf(typeof model === 'string' ? await modelIn(model) : model, options)
}

async function modelIn(file: string): Promise<ModelFile> {
  const bytes = await readFile(file).catch((cause: unknown) => {
    throw new GridError(
      'dataset-unreadable',
      `expected a model file, got ${file} (${describeError(cause)}); name one that can be read`,
      { cause },
    )
  })
  return readModelFile(bytes, file)
}

async function predictorOf(model: ModelFile, options: PredictorOptions): Promise<Predictor> {
  const { tokenizer, ...choice } = options
  const whole = tokenizer === undefined ? model : { ...model, tokenizer }
  const tokens = takesTokens(model.spec) ? textTokens(whole) : undefined
  if (tokens !== undefined) requireNextToken(model.spec)
  const { executor, close } = await openExecutor(
    model.spec,
    tokens === undefined ? choice : { ...choice, maxMicroBatch: 1 },
  )
  executor.loadParameters(model.parameters)
  return new Predictor({ model: whole, executor, close, tokens })
}

function requireNextToken(spec: ModelSpec): void {
  if (outputShape(spec).length === 2) return
  throw new GridError(
    'unsupported',
    `expected a model that predicts a next token, got ${spec.name}; name one that was trained on text`,
  )
}

interface PredictorParts {
  readonly model: ModelFile
  readonly executor: Executor
  readonly close: () => void
  readonly tokens: TextTokens | undefined
}

export class Predictor {
  readonly #parts: PredictorParts
  readonly #preparation: SamplePreparation

  constructor(parts: PredictorParts) {
    this.#parts = parts
    this.#preparation = new SamplePreparation(parts.model.signature)
  }

  get spec(): ModelSpec {
    return this.#parts.model.spec
  }

  get signature(): ModelSignature {
    return this.#parts.model.signature
  }

  /** the device that computes */
  get adapter(): AdapterDescription {
    return this.#parts.executor.adapter
  }

  /** Whether it goes on with a text; otherwise it answers samples. */
  get writes(): boolean {
    return this.#parts.tokens !== undefined
  }

  /**
   * `stored`: whole samples (samples, …stored shape) as the dataset has them: pixels of 0 to 255, cells of a table.
   * @throws GridError 'unsupported' of a model of text
   */
  async predict(stored: Uint8Array | Float32Array | Int32Array): Promise<Prediction[]> {
    const { model, executor } = this.#parts
    if (this.writes)
      throw new GridError('unsupported', `expected a model of samples, got ${model.spec.name}, which writes text`)
    const samples = stored.length / storedElementsOf(model.signature)
    if (!Number.isInteger(samples))
      throw new Error(`internal: ${stored.length} numbers are no whole samples of the model`)
    const found: Prediction[] = []
    for (let from = 0; from < samples; from += BATCH) {
      const count = Math.min(BATCH, samples - from)
      const x = new Float32Array(count * elementsOf(model.signature))
      for (let at = 0; at < count; at++) this.#preparation.copy({ stored, from: from + at, x, at }, undefined)
      found.push(...this.#named(await executor.predict(x, count), count))
    }
    return found
  }

  /** Goes on with `prompt`, piece by piece; the prompt itself is not repeated. @throws GridError 'usage' */
  async *write(prompt: string, options: WritingOptions = {}): AsyncGenerator<string> {
    const { model, executor, tokens } = this.#parts
    const { tokens: count = 500, temperature = 0.8, topK, seed = 1337 } = options
    if (tokens === undefined)
      throw new GridError('unsupported', `expected a model of text, got ${model.spec.name}, which answers samples`)
    const written = tokens.encode(prompt)
    if (written.length === 0) throw new GridError('usage', 'expected a prompt, got an empty one; write a line of it')
    const [context = 1, vocab = 1] = outputShape(model.spec)
    const [draw, decode] = [draws(seed), tokens.decoder()]
    const choice = { temperature, ...(topK === undefined ? {} : { topK }) }
    for (let i = 0; i < count; i++) {
      const { window, last } = contextOf(written, context)
      const logits = await executor.predict(window, 1)
      // a model may have more tokens than the text had
      const token = nextToken(logits.subarray(last * vocab, last * vocab + tokens.size), choice, draw())
      written.push(token)
      yield decode(token)
    }
  }

  close(): void {
    this.#parts.executor.destroy()
    this.#parts.close()
  }

  #named(outputs: Float32Array, samples: number): Prediction[] {
    const each = outputs.length / samples
    return Array.from({ length: samples }, (_, i) => this.#answers(outputs.subarray(i * each, (i + 1) * each)))
  }

  #answers(outputs: Float32Array): Prediction {
    const { spec, signature } = this.#parts.model
    const kind = signature.target ?? 'classes'
    const numbers = outputs.subarray(0, signature.classes)
    if (kind === 'values') return { kind, answers: named([...numbers], signature, 'value') }
    if (kind === 'labels') return { kind, answers: named([...numbers].map(sigmoid), signature, 'label') }
    const answers = named(probabilities(spec, outputs).slice(0, signature.classes), signature, 'class')
    return { kind, answers: answers.sort((a, b) => b.value - a.value) }
  }
}

function named(values: readonly number[], signature: ModelSignature, what: string): NamedNumber[] {
  const { classNames, targetNames } = signature
  const names = targetNames ?? classNames ?? []
  const numbered = (i: number): string => (values.length === 1 ? what : `${what} ${i}`)
  return values.map((value, i) => ({ name: names[i] ?? numbered(i), value }))
}

/** Of each class, as the loss of the model means its outputs. */
function probabilities({ loss }: ModelSpec, outputs: Float32Array): number[] {
  if (loss === 'bce_with_logits') return [...outputs].map(sigmoid)
  if (loss === 'mse') return [...outputs].map((value) => Math.min(1, Math.max(0, value)))
  const largest = outputs.reduce((greatest, value) => Math.max(greatest, value), Number.NEGATIVE_INFINITY)
  const weights = [...outputs].map((value) => Math.exp(value - largest))
  const sum = weights.reduce((total, weight) => total + weight, 0)
  return weights.map((weight) => weight / sum)
}

function sigmoid(value: number): number {
  return 1 / (1 + Math.exp(-value))
}
