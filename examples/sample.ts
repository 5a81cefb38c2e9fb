// Writes text with a trained model: node --import tsx examples/sample.ts MODEL.safetensors [options]
// The file is one that a run on text exported: it names its own model and vocabulary.
import { readFile } from 'node:fs/promises'
import { openGpu, prepareProcess } from '@starling-grid/client-node'
import {
  type ModelSpec,
  outputShape,
  parameterLayout,
  parseModelSpec,
  readParameters,
  tokenVocabulary,
} from '@starling-grid/model'
import { describeError, GridError, readSafetensors } from '@starling-grid/protocol'
import { createGpuExecutor, createReferenceExecutor, type Executor } from '@starling-grid/volunteer'
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander'
import { contextOf, draws, nextToken } from './next-token.ts'

interface SampleOptions {
  readonly prompt: string
  readonly length: number
  readonly temperature: number
  readonly topK?: number
  readonly seed: number
  readonly executor: 'webgpu' | 'reference'
  readonly adapter?: string
}

interface TextModel {
  readonly spec: ModelSpec
  readonly parameters: Float32Array
  /** character by token */
  readonly characters: readonly string[]
}

async function main(argv: string[]): Promise<void> {
  const program = new Command('sample')
    .description('Writes text with a model that was trained on text.')
    .argument('<model>', 'safetensors file that a run exported')
    .option('--prompt <text>', 'what the text begins with', '\n')
    .option('--length <n>', 'characters to write', positive, 500)
    .option('--temperature <x>', 'below 1 prefers what is likely', positive, 0.8)
    .option('--top-k <n>', 'only the most likely so many characters', positive)
    .option('--seed <n>', 'of the draws', Number, 1337)
    .addOption(new Option('--executor <kind>', 'what computes').choices(['webgpu', 'reference']).default('webgpu'))
    .option('--adapter <text>', "part of the wanted adapter's name")
    .exitOverride()
    .parse(argv, { from: 'user' })
  const options = program.opts<SampleOptions>()
  const model = await readModel(program.args[0] ?? '')
  const { executor, close } = await openExecutor(model.spec, options)
  try {
    executor.loadParameters(model.parameters)
    process.stdout.write(options.prompt)
    for await (const character of write(model, executor, options)) process.stdout.write(character)
    process.stdout.write('\n')
  } finally {
    executor.destroy()
    close()
  }
}

async function readModel(file: string): Promise<TextModel> {
  const bytes = await readFile(file).catch((cause: unknown) => {
    throw new GridError(
      'dataset-unreadable',
      `expected a model file, got ${file} (${describeError(cause)}); name one that \`starling train\` wrote`,
      { cause },
    )
  })
  const { spec: json, vocabulary } = readSafetensors(bytes).metadata
  if (json === undefined || vocabulary === undefined)
    throw new GridError(
      'dataset-unreadable',
      `expected a model and vocabulary in ${file}, got none; export it from a run on text`,
    )
  const spec = parseModelSpec(JSON.parse(json))
  const characters = [...vocabulary]
  if (tokenVocabulary(spec) === undefined || outputShape(spec).length !== 2)
    throw new GridError(
      'unsupported',
      `expected a model that predicts a next token, got ${spec.name}; name one that was trained on text`,
    )
  return { spec, characters, parameters: readParameters(bytes, parameterLayout(spec)) }
}

async function openExecutor(
  spec: ModelSpec,
  { executor, adapter }: SampleOptions,
): Promise<{ readonly executor: Executor; close(): void }> {
  if (executor === 'reference') return { executor: createReferenceExecutor(spec), close: () => undefined }
  await prepareProcess({ adapter })
  const gpu = await openGpu({ adapter })
  const options = {
    device: gpu.device,
    adapter: gpu.description,
    spec,
    readText: (url: URL) => readFile(url, 'utf8'),
    maxMicroBatch: 1,
  }
  return { executor: await createGpuExecutor(options), close: () => gpu.close() }
}

async function* write(
  { spec, characters }: TextModel,
  executor: Executor,
  options: SampleOptions,
): AsyncGenerator<string> {
  const [context = 1, vocab = 1] = outputShape(spec)
  const tokens = [...options.prompt].map((character) => tokenOf(characters, character))
  const draw = draws(options.seed)
  for (let i = 0; i < options.length; i++) {
    const { window, last } = contextOf(tokens, context)
    const logits = await executor.predict(window, 1)
    // a model may have more tokens than the text had characters
    const token = nextToken(logits.subarray(last * vocab, last * vocab + characters.length), options, draw())
    tokens.push(token)
    yield characters[token] ?? ''
  }
}

function tokenOf(characters: readonly string[], character: string): number {
  const token = characters.indexOf(character)
  if (token < 0)
    throw new GridError(
      'usage',
      `expected characters of ${JSON.stringify(characters.join(''))} in the prompt, ` +
        `got ${JSON.stringify(character)}; leave it out`,
    )
  return token
}

function positive(text: string): number {
  const value = Number(text)
  if (!(value > 0)) throw new InvalidArgumentError('expected a number above 0')
  return value
}

try {
  await main(process.argv.slice(2))
} catch (error) {
  if (!(error instanceof CommanderError)) console.error(describeError(error))
  const isHelp = error instanceof CommanderError && error.exitCode === 0
  if (!isHelp) process.exitCode = error instanceof CommanderError ? 2 : 1
}
