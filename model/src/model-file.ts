// An exported model as programs that predict read it. It is a safetensors file, and its metadata say what the model is,
// what it takes and what its answers are called.
import {
  type ChatForm,
  ChatFormSchema,
  describeError,
  GridError,
  type ModelSignature,
  ModelSignatureSchema,
  parse,
  readSafetensors,
  requirePossibleImages,
} from '@starling-grid/protocol'
import { lastSize } from '@starling-grid/shaders'
import { outputShape, parameterLayout } from './param-layout.ts'
import { parseModelSpec } from './parse.ts'
import type { ModelSpec } from './spec.ts'
import { takesTokens } from './tokens.ts'
import { readParameters } from './version-state.ts'

/** A number of steps; programs may write other things there. */
const STEP = /^[0-9]{1,15}$/

export interface ModelFile {
  readonly spec: ModelSpec
  readonly signature: ModelSignature
  /** of a text of characters: character by token */
  readonly vocabulary?: string
  /** of a text of pieces: JSON of its tokenizer.json */
  readonly tokenizer?: string
  /** of a tuned model: how it is talked to */
  readonly chat?: ChatForm
  /** of its job: the step at which it stood */
  readonly v?: number
  /** (parameterCount,) in the order of the layout */
  readonly parameters: Float32Array
}

/**
 * @throws GridError 'model-invalid' when the file is no exported model, 'version-corrupt' when its tensors are not that
 * model's
 * @example const { spec, signature, parameters } = readModelFile(await readFile('digits-v40.safetensors'))
 */
export function readModelFile(bytes: Uint8Array, file = 'the file'): ModelFile {
  const { spec: json, signature, vocabulary, tokenizer, chat, v } = metadataOf(bytes, file)
  if (json === undefined)
    throw new GridError(
      'model-invalid',
      `expected a model with its description (\`spec\` in its metadata), got none in ${file}; ` +
        'take a file that `starling job export` or `starling train` wrote',
    )
  const spec = parseModelSpec(jsonOf(json, `the model of ${file}`))
  return {
    spec,
    signature: signature === undefined ? plainSignature(spec) : signatureIn(signature, spec, file),
    ...(vocabulary === undefined ? {} : { vocabulary }),
    ...(tokenizer === undefined ? {} : { tokenizer }),
    ...(chat === undefined
      ? {}
      : { chat: parse(ChatFormSchema, jsonOf(chat, `the chat of ${file}`), `the chat of ${file}`, 'model-invalid') }),
    ...(v === undefined || !STEP.test(v) ? {} : { v: Number(v) }),
    parameters: readParameters(bytes, parameterLayout(spec)),
  }
}

function metadataOf(bytes: Uint8Array, file: string): Record<string, string> {
  try {
    return readSafetensors(bytes).metadata
  } catch (cause) {
    throw new GridError('model-invalid', `${file}: ${describeError(cause)}; take an exported model`, { cause })
  }
}

/** Of a program that wrote no signature: inputs as the model says, answers counted. */
function plainSignature(spec: ModelSpec): ModelSignature {
  const inputShape = [...spec.input]
  const outputs = outputShape(spec)
  const values = spec.loss === 'mse' ? ({ target: 'values' } as const) : {}
  const labels = spec.loss === 'bce_with_logits' ? ({ target: 'labels' } as const) : {}
  return { inputShape, inputScale: Math.min(1, spec.inputScale), classes: lastSize(outputs), ...values, ...labels }
}

function signatureIn(json: string, spec: ModelSpec, file: string): ModelSignature {
  const what = `the signature of ${file}`
  const signature = parse(ModelSignatureSchema, jsonOf(json, what), what, 'model-invalid')
  if (signature.inputShape.join() !== spec.input.join())
    throw new GridError(
      'model-invalid',
      `expected inputs of [${spec.input.join(', ')}] as the model takes them, ` +
        `got [${signature.inputShape.join(', ')}] in ${what}; export it again`,
    )
  if (!takesTokens(spec)) requirePossibleImages(signature)
  return signature
}

function jsonOf(text: string, what: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new GridError('model-invalid', `expected JSON as ${what}, got other text; export it again`, { cause })
  }
}
