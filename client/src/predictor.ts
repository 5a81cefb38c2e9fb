// A trained model that answers: samples as its dataset had them, prepared as in training, and answers under the
// dataset's names.
import { readFile } from 'node:fs/promises'
import {
  fixedEntries,
  type ModelFile,
  type ModelSpec,
  outputShape,
  readModelFile,
  takesTokens,
} from '@starling-grid/model'
import { type TextTokens, textTokens, type WritingOptions, writtenText } from '@starling-grid/model/text'
import { describeError, elementsOf, GridError, type ModelSignature, storedElementsOf } from '@starling-grid/protocol'
import { type AdapterDescription, type Executor, SamplePreparation } from '@starling-grid/volunteer'
import { decodes, type FrozenSource, writingContext, windowDecoder } from '@starling-grid/volunteer/language'
import { type DecoderOptions, type ExecutorChoice, openDecoder, openExecutor } from './executor.ts'

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

export interface PredictorOptions extends ExecutorChoice {
  /** JSON of a tokenizer.json, in place of the one that the model carries */
  readonly tokenizer?: string
  /** of adapters: the model that they were trained beside */
  readonly base?: BaseOfAdapters
  /** places of a text that the model sees; absent: as in training */
  readonly context?: number
}

/** The frozen part of a model, and what its folder says of answers. */
export interface BaseOfAdapters {
  readonly frozen: FrozenSource
  /** tokens that end an answer */
  readonly ends?: readonly number[]
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
  const { tokenizer, base, context, ...choice } = options
  const whole = tokenizer === undefined ? model : { ...model, tokenizer }
  requireBase(model.spec, base)
  const tokens = takesTokens(model.spec) ? textTokens(whole) : undefined
  if (tokens === undefined) return samplePredictor(whole, choice)
  requireNextToken(model.spec)
  const window = context ?? writingContext(model.spec)
  const computing = decodes(model.spec)
    ? await tokenWriter(whole, { context: window, frozen: base?.frozen }, choice)
    : await windowWriter(whole, choice)
  return new Predictor({ model: whole, ...computing, tokens, ends: base?.ends ?? [] })
}

async function samplePredictor(model: ModelFile, choice: ExecutorChoice): Promise<Predictor> {
  const { executor, close } = await openExecutor(model.spec, choice)
  executor.loadParameters(model.parameters)
  const release = (): void => {
    executor.destroy()
    close()
  }
  return new Predictor({ model, executor, adapter: executor.adapter, close: release, tokens: undefined, ends: [] })
}

/** Keeps the keys and values of what it saw. */
async function tokenWriter(model: ModelFile, form: DecoderOptions, choice: ExecutorChoice): Promise<Writing> {
  const { made, adapter, close } = await openDecoder(model.spec, form, choice)
  made.loadParameters(model.parameters)
  const release = (): void => {
    made.destroy()
    close()
  }
  return { adapter, logitsAfter: (written) => made.logitsAfter(written), close: release }
}

/** Computes the whole context for each token. */
async function windowWriter(model: ModelFile, choice: ExecutorChoice): Promise<Writing> {
  const { executor, close } = await openExecutor(model.spec, { ...choice, maxMicroBatch: 1 })
  const decoder = windowDecoder(model.spec, executor)
  decoder.loadParameters(model.parameters)
  return {
    adapter: executor.adapter,
    logitsAfter: (written) => decoder.logitsAfter(written),
    close() {
      decoder.destroy()
      close()
    },
  }
}

/** @throws GridError 'usage' of adapters alone */
function requireBase(spec: ModelSpec, base: BaseOfAdapters | undefined): void {
  if (base !== undefined || !fixedEntries(spec).some(({ kind }) => kind === 'frozen')) return
  throw new GridError(
    'usage',
    `expected the model that the adapters of ${spec.name} belong to, got adapters alone; name its folder with --base`,
  )
}

function requireNextToken(spec: ModelSpec): void {
  if (outputShape(spec).length === 2) return
  throw new GridError(
    'unsupported',
    `expected a model that predicts a next token, got ${spec.name}; name one that was trained on text`,
  )
}

interface Writing {
  readonly adapter: AdapterDescription
  /** Logits (vocab,) of the token after a text that is not empty. */
  readonly logitsAfter: (written: readonly number[]) => Promise<Float32Array>
  readonly close: () => void
}

interface PredictorParts {
  readonly model: ModelFile
  /** of models that answer samples */
  readonly executor?: Executor
  readonly adapter: AdapterDescription
  /** of models that write */
  readonly logitsAfter?: Writing['logitsAfter']
  readonly close: () => void
  readonly tokens: TextTokens | undefined
  readonly ends: readonly number[]
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

  /** of a tuned model: how it is talked to */
  get chat(): ModelFile['chat'] {
    return this.#parts.model.chat
  }

  /** the device that computes */
  get adapter(): AdapterDescription {
    return this.#parts.adapter
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
    if (executor === undefined)
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
    const { model, logitsAfter, tokens, ends } = this.#parts
    if (tokens === undefined || logitsAfter === undefined)
      throw new GridError('unsupported', `expected a model of text, got ${model.spec.name}, which answers samples`)
    yield* writtenText({ logitsAfter, tokens, ends }, prompt, options)
  }

  close(): void {
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
