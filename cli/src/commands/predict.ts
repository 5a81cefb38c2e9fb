// `predict`: what a trained model answers to images, rows of a table, or the beginning of a text.
import { readFile, stat } from 'node:fs/promises'
import { extname } from 'node:path'
import { GridJob, type ModelFile, openPredictor, type Predictor, type PredictorOptions } from '@starling-grid/client'
import { adapterLabel, EXECUTOR_CHOICES, type ExecutorWish } from '@starling-grid/client-node'
import { openApi } from '@starling-grid/client/connection'
import {
  openRow,
  openUnlabelled,
  type UnlabelledOptions,
  type UnlabelledSource,
} from '@starling-grid/coordinator/datasets'
import { ChatTemplate } from '@starling-grid/model/chat'
import { DEFAULT_TOKENS } from '@starling-grid/model/text'
import { describeError, GridError, isGridError } from '@starling-grid/protocol'
import { Command, InvalidArgumentError, Option } from 'commander'
import { type ConnectionFlags, withConnection } from '../api/connection.ts'
import { jobNamed } from '../api/job-named.ts'
import { wholeNumber } from '../arguments.ts'
import {
  isPublishedFolder,
  type LanguageModel,
  modelOfFile,
  modelOfFolder,
  modelOfJob,
} from '../language/open-language-model.ts'
import { answerJson, answerLines, type Answered, csvHeader, csvRow } from '../predict/answers.ts'
import { ProgressLine } from '../terminal/progress-line.ts'

/** How a model of text goes on. */
interface TextFlags {
  readonly tokens: number
  readonly temperature: number
  readonly topK?: number
  readonly topP?: number
  readonly chat?: boolean
  readonly seed: number
  readonly tokenizer?: string
}

/** What of a tuned model lies elsewhere. */
interface PlaceFlags {
  readonly version?: number
  readonly base?: string
  readonly lora?: string
}

interface PredictFlags extends ConnectionFlags, TextFlags, PlaceFlags {
  readonly job?: string
  readonly json?: boolean
  readonly top: number
  readonly resize?: boolean
  readonly header: boolean
  readonly delimiter?: string
  readonly executor: ExecutorWish
  readonly adapter?: string
}

/** Samples that wait to be computed together: a folder of images gives one at a time. */
const BATCH = 64

export async function predict(argv: string[]): Promise<number> {
  const { words, flags } = parse(argv)
  const inputs = flags.job === undefined ? words.slice(1) : words
  if (inputs.length === 0)
    throw new GridError(
      'usage',
      'expected a model and what it is to answer, got no input; name an image, a folder, a CSV file, a row or a text',
    )
  const model = flags.job === undefined ? await ofPlace(words[0] ?? '', flags) : await ofJob(flags.job, flags)
  try {
    if (!flags.json) process.stderr.write(`${model.spec.name} on ${adapterLabel(model.adapter)}\n`)
    if (model.writes) for (const prompt of inputs) await write(model, prompt, flags)
    else await answer(model, inputs, flags)
  } finally {
    model.close()
  }
  return 0
}

function parse(argv: string[]): { readonly words: readonly string[]; readonly flags: PredictFlags } {
  const program = new Command('starling predict')
    .description(
      'Answers with a trained model: images (PNG, JPEG), CSV or JSON lines, rows such as 5.1,3.5,1.4,0.2, folders, ' +
        'or the beginning of a text to go on with. One input gets a table; folders and files of rows get CSV on stdout',
    )
    .argument(
      '<words...>',
      'a model file, or the folder of a published language model (none with --job), and the inputs',
    )
    .option('--job <id>', 'the newest model of a job of a coordinator, in place of a model file')
    .option('--version <n>', 'with --job: the kept checkpoint of that step', wholeNumber(0))
    .option('--base <folder>', 'of a file of adapters: the published model that they were tuned from')
    .option('--lora <folder>', "of a published model's folder: adapters beside it, as PEFT writes them")
    .option('--chat', "the input is a message: it is asked in the form of the model's chat template")
    .option('--json', 'JSON lines on stdout, one for each input')
    .option('--top <n>', 'classes that are shown of each input', wholeNumber(1), 5)
    .option('--resize', 'scale images that do not have the size that the model takes')
    .option('--no-header', 'rows of CSV begin with the first line')
    .option('--delimiter <text>', 'between the cells of CSV')
    .option('--tokens <n>', 'tokens to write', wholeNumber(1), DEFAULT_TOKENS)
    .option('--temperature <x>', 'below 1 prefers what is likely; 0 always takes the most likely', temperature, 0.8)
    .option('--top-k <n>', 'write only the most likely so many tokens', wholeNumber(1))
    .option('--top-p <x>', 'write only the most likely tokens that make this part of the probability', part)
    .option('--seed <n>', 'of what is drawn while writing', wholeNumber(0), 1337)
    .option('--tokenizer <file>', 'tokenizer.json of a model that does not carry its own')
    .addOption(
      new Option('--executor <kind>', 'what computes; auto: WebAssembly on the processor, where no WebGPU is')
        .choices(EXECUTOR_CHOICES)
        .default('auto'),
    )
    .option('--adapter <text>', "part of the wanted adapter's name")
  withConnection(program).exitOverride().parse(argv, { from: 'user' })
  return { words: program.args, flags: program.opts<PredictFlags>() }
}

function temperature(text: string): number {
  const value = Number(text)
  if (text.trim() === '' || !(value >= 0 && Number.isFinite(value)))
    throw new InvalidArgumentError('expected 0 or a number above it')
  return value
}

function part(text: string): number {
  const value = Number(text)
  if (!(value > 0 && value <= 1)) throw new InvalidArgumentError('expected a number above 0, up to 1')
  return value
}

/** On WebGPU; where there is none, and no executor was asked for, on the CPU, which is said. */
async function opened(
  model: string | ModelFile,
  flags: PredictFlags,
  base?: PredictorOptions['base'],
): Promise<Predictor> {
  const { executor, adapter } = flags
  const options: PredictorOptions = {
    ...(base === undefined ? {} : { base }),
    ...(adapter === undefined ? {} : { adapter }),
    ...(flags.tokenizer === undefined ? {} : { tokenizer: await textOf(flags.tokenizer) }),
  }
  try {
    return await openPredictor(model, { ...options, executor: executor === 'auto' ? 'webgpu' : executor })
  } catch (error) {
    if (executor !== 'auto' || adapter !== undefined || !isGridError(error) || error.code !== 'no-adapter') throw error
    process.stderr.write(`No WebGPU here, so WebAssembly computes, on the processor: ${error.message}\n`)
    return openPredictor(model, { ...options, executor: 'wasm' })
  }
}

function textOf(file: string): Promise<string> {
  return readFile(file, 'utf8').catch((cause: unknown) => {
    throw new GridError('usage', `expected a tokenizer.json, got ${file} (${describeError(cause)}); name another`, {
      cause,
    })
  })
}

async function ofJob(name: string, flags: PredictFlags): Promise<Predictor> {
  const api = await openApi(flags)
  const { version } = flags
  const found = await new GridJob(api, await jobNamed(api, name)).model(version === undefined ? {} : { version })
  return openedWhole(await modelOfJob(found, api), flags)
}

/** A model file, or the folder of a published model. */
async function ofPlace(path: string, flags: PredictFlags): Promise<Predictor> {
  if (await isPublishedFolder(path)) {
    return openedWhole(await modelOfFolder(path, flags.lora), flags)
  }
  if (flags.base === undefined) return opened(path, flags)
  return openedWhole(await modelOfFile(path, flags.base), flags)
}

async function openedWhole({ model, base, close }: LanguageModel, flags: PredictFlags): Promise<Predictor> {
  try {
    return await opened(model, flags, base)
  } finally {
    await close()
  }
}

/** The prompt and what follows it, as it comes; with --json both at once. */
async function write(model: Predictor, prompt: string, flags: PredictFlags): Promise<void> {
  let text = ''
  const { tokens, temperature: warmth, topK, topP, seed } = flags
  const asked = flags.chat === true ? asMessage(model, prompt) : prompt
  if (flags.json !== true) process.stdout.write(flags.chat === true ? '' : prompt)
  for await (const piece of model.write(asked, {
    tokens,
    temperature: warmth,
    seed,
    ...(topK === undefined ? {} : { topK }),
    ...(topP === undefined ? {} : { topP }),
  })) {
    text += piece
    if (flags.json !== true) process.stdout.write(piece)
  }
  process.stdout.write(flags.json === true ? `${JSON.stringify({ input: prompt, text })}\n` : '\n')
}

/** What the model's chat template makes of a message. @throws GridError 'usage' of a model without one */
function asMessage({ spec, chat }: Predictor, content: string): string {
  if (chat?.template === undefined)
    throw new GridError('usage', `expected a model with a chat template for --chat, got ${spec.name}; leave --chat out`)
  return new ChatTemplate(chat.template, chat.special).render([{ role: 'user', content }], true)
}

async function answer(model: Predictor, inputs: readonly string[], flags: PredictFlags): Promise<void> {
  const options: UnlabelledOptions = {
    signature: model.signature,
    isScaled: flags.resize === true,
    header: flags.header,
    ...(flags.delimiter === undefined ? {} : { delimiter: flags.delimiter }),
  }
  const sources = await Promise.all(inputs.map((input) => sourceOf(input, options)))
  const isBatch = sources.some((source) => source.isBatch)
  const line = new ProgressLine()
  const total = sources.reduce((sum, { bytes }) => sum + bytes, 0)
  const print = printer(flags, isBatch)
  let count = 0
  for await (const { answered, bytes } of answers(model, sources)) {
    for (const one of answered) print(one)
    count += answered.length
    if (isBatch) line.show(progress(bytes / total, count))
  }
  if (isBatch) line.say(`${count} inputs`)
}

/** A file or folder; what is neither, but has cells between separators or is a number, is a row. */
async function sourceOf(input: string, options: UnlabelledOptions): Promise<UnlabelledSource> {
  const isThere = await stat(input).then(
    () => true,
    () => false,
  )
  const isRow = !isThere && extname(input).search(/^\.[a-z]/i) < 0 && !input.includes('/')
  return isRow ? openRow(input, options) : openUnlabelled(input, options)
}

interface AnsweredRun {
  readonly answered: readonly Answered[]
  /** of the sources, read so far */
  readonly bytes: number
}

/** In the order of the inputs, many at once. */
async function* answers(model: Predictor, sources: readonly UnlabelledSource[]): AsyncGenerator<AnsweredRun> {
  let [names, parts, bytes] = [[] as string[], [] as (Uint8Array | Float32Array)[], 0]
  for (const source of sources)
    for await (const run of source.read()) {
      names.push(...run.names)
      parts.push(run.x)
      bytes += run.bytes
      if (names.length < BATCH) continue
      yield { answered: await answered(model, names, parts), bytes }
      ;[names, parts] = [[], []]
    }
  if (names.length > 0) yield { answered: await answered(model, names, parts), bytes }
}

async function answered(
  model: Predictor,
  names: readonly string[],
  parts: readonly (Uint8Array | Float32Array)[],
): Promise<Answered[]> {
  const stored = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of parts) {
    stored.set(part, at)
    at += part.length
  }
  const predictions = await model.predict(stored)
  return predictions.map((prediction, i) => ({ input: names[i] ?? '', prediction }))
}

function printer({ json, top }: PredictFlags, isBatch: boolean): (answered: Answered) => void {
  let isFirst = true
  return (one) => {
    const before = isBatch && isFirst ? [csvHeader(one.prediction)] : []
    isFirst = false
    const rows = isBatch ? [...before, csvRow(one)] : answerLines(one, top)
    for (const text of json === true ? [answerJson(one, top)] : rows) process.stdout.write(`${text}\n`)
  }
}

function progress(share: number, count: number): string {
  const width = 20
  const full = Math.round(width * Math.min(1, share))
  return `[${'█'.repeat(full)}${' '.repeat(width - full)}] ${Math.floor(100 * Math.min(1, share))} %  ${count} inputs`
}
